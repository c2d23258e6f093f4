// Gather and scatter in which one operation moves all elements of a rank: by datatypes, or packed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/mpi/exchange.hpp"
#include "backends/mpi/library.hpp"
#include "backends/ranks/gather.hpp"
#include "backends/ranks/indexed.hpp"
#include "backends/ranks/table.hpp"
#include "core/body.hpp"
#include "engine/device.hpp"

namespace memkern::mpi {
namespace {

// Elements of the rank's row of the dense buffer, and of their owner's part of the sparse array.
struct Elements {
  std::vector<std::int64_t> dense;
  std::vector<std::int64_t> sparse;
};

// The moves of a rank by the owners of the elements.
template <class L, class T>
std::map<int, Elements> by_owner(const std::byte* sparse, const ranks::Moves& moves) {
  constexpr std::int64_t kSize = sizeof(T);
  std::map<int, Elements> all;
  for (std::size_t k = 0; k < moves.sparse_at.size(); ++k) {
    const auto place = ranks::arrays<L>().place_of(sparse + moves.sparse_at[k] * kSize);
    all[place.rank].dense.push_back(moves.dense_at[k]);
    all[place.rank].sparse.push_back(place.at / kSize);
  }
  return all;
}

// Copies the elements that the rank owns itself.
template <class T>
void copy_own(const Elements& own, std::byte* dense, std::byte* sparse, bool gathers) {
  T* const row = reinterpret_cast<T*>(dense);
  T* const part = reinterpret_cast<T*>(sparse);
  for (std::size_t k = 0; k < own.dense.size(); ++k) {
    T& near = row[own.dense[k]];
    T& far = part[own.sparse[k]];
    (gathers ? near : far) = gathers ? far : near;
  }
}

// A datatype for the elements with these numbers.
class Places {
 public:
  Places(const std::vector<std::int64_t>& numbers, MPI_Datatype element, std::int64_t size_B) {
    std::vector<MPI_Aint> at;
    for (const std::int64_t number : numbers) at.push_back(number * size_B);
    MPI_Type_create_hindexed_block(static_cast<int>(at.size()), 1, at.data(), element, &type_);
    MPI_Type_commit(&type_);
  }
  ~Places() { MPI_Type_free(&type_); }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

template <class L, class T>
class Indexed {
 public:
  Indexed(const std::byte* sparse, bool gathers, const ranks::Moves& moves)
      : gathers_(gathers),
        dense_(moves.dense),
        memory_(*ranks::arrays<L>().place_of(sparse).memory) {
    for (auto& [rank, elements] : by_owner<L, T>(sparse, moves)) {
      if (rank == L::rank()) {
        own_ = elements;
        continue;
      }
      transfers_.push_back({rank, places(elements.dense), places(elements.sparse)});
    }
  }

  void run(const ranks::Settings&) const {
    for (const Transfer& t : transfers_) {
      if (gathers_) {
        MPI_Get(dense_, 1, t.dense->type(), t.rank, memory_.lead, 1, t.sparse->type(),
                memory_.window);
      } else {
        MPI_Put(dense_, 1, t.dense->type(), t.rank, memory_.lead, 1, t.sparse->type(),
                memory_.window);
      }
    }
    copy_own<T>(own_, dense_, L::own(memory_), gathers_);
    MPI_Win_flush_all(memory_.window);
  }

 private:
  struct Transfer {
    int rank;
    std::unique_ptr<Places> dense;
    std::unique_ptr<Places> sparse;
  };
  static std::unique_ptr<Places> places(const std::vector<std::int64_t>& numbers) {
    return std::make_unique<Places>(numbers, type_of<T>(), sizeof(T));
  }

  bool gathers_;
  std::byte* dense_;
  typename L::Memory memory_;
  Elements own_;
  std::vector<Transfer> transfers_;
};

// Sends each rank its list, and returns the lists received from the others, by rank.
std::vector<std::vector<std::int64_t>> exchanged(
    const std::vector<std::vector<std::int64_t>>& lists) {
  const std::size_t ranks = lists.size();
  std::vector<int> sent;
  std::vector<int> received(ranks);
  std::vector<std::int64_t> out;
  for (const auto& list : lists) {
    sent.push_back(static_cast<int>(list.size()));
    out.insert(out.end(), list.begin(), list.end());
  }
  MPI_Alltoall(sent.data(), 1, MPI_INT, received.data(), 1, MPI_INT, Library::processes());
  const auto starts = [](const std::vector<int>& counts) {
    std::vector<int> first(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), first.begin(), 0);
    return first;
  };
  const std::vector<int> first = starts(received);
  std::vector<std::int64_t> in(static_cast<std::size_t>(first.back() + received.back()));
  MPI_Alltoallv(out.data(), sent.data(), starts(sent).data(), MPI_INT64_T, in.data(),
                received.data(), first.data(), MPI_INT64_T, Library::processes());
  std::vector<std::vector<std::int64_t>> all;
  for (std::size_t r = 0; r < ranks; ++r) {
    all.emplace_back(in.begin() + first[r], in.begin() + first[r] + received[r]);
  }
  return all;
}

// The rank that has the values packs them for each other rank.
template <class L, class T>
class Packed {
 public:
  Packed(const std::byte* sparse, bool gathers, const ranks::Moves& moves, bool collective = false)
      : gathers_(gathers),
        dense_(moves.dense),
        sparse_(L::own(*ranks::arrays<L>().place_of(sparse).memory)) {
    auto moved = by_owner<L, T>(sparse, moves);
    own_ = std::move(moved[L::rank()]);
    moved.erase(L::rank());
    std::vector<std::vector<std::int64_t>> wanted(static_cast<std::size_t>(L::ranks()));
    for (const auto& [rank, elements] : moved) {
      wanted[static_cast<std::size_t>(rank)] = elements.sparse;
    }
    const auto requested = exchanged(wanted);
    Plan plan;
    plan.collective = collective;
    for (int rank = 0; rank < L::ranks(); ++rank) {
      const std::vector<std::int64_t>& theirs = requested[static_cast<std::size_t>(rank)];
      const std::vector<std::int64_t>& mine = moved[rank].dense;
      if (theirs.empty() && mine.empty()) continue;
      const auto& from = gathers ? theirs : mine;
      const auto& to = gathers ? mine : theirs;
      plan.neighbours.push_back({rank, from, std::ssize(to)});
      plan.to.insert(plan.to.end(), to.begin(), to.end());
    }
    plan.of.resize(plan.to.size());
    std::iota(plan.of.begin(), plan.of.end(), 0);
    exchange_ = std::make_unique<PackedExchange>(plan);
    std::int64_t sends = 0;
    for (const Neighbour& n : plan.neighbours) sends = std::max(sends, beyond(n.sent));
    exchange_->bind(sizeof(T) == 8 ? "uint64" : "uint32", gathers ? sparse_ : dense_, sends,
                    gathers ? dense_ : sparse_, beyond(plan.to));
  }

  void run(const ranks::Settings&) const {
    exchange_->pack({0, exchange_->packed()});
    exchange_->start();
    copy_own<T>(own_, dense_, sparse_, gathers_);
    exchange_->finish();
    exchange_->unpack({0, exchange_->unpacked()});
  }

 private:
  // The positions count elements of the arrays.
  static std::int64_t beyond(const std::vector<std::int64_t>& positions) {
    return positions.empty() ? 0 : *std::max_element(positions.begin(), positions.end()) + 1;
  }

  bool gathers_;
  std::byte* dense_;
  std::byte* sparse_;
  Elements own_;
  std::unique_ptr<PackedExchange> exchange_;
};

// The same with one neighbourhood collective.
template <class L, class T>
class Collective : public Packed<L, T> {
 public:
  Collective(const std::byte* sparse, bool gathers, const ranks::Moves& moves)
      : Packed<L, T>(sparse, gathers, moves, true) {}
};

const ranks::TableRegistrar registrar([](std::vector<DeviceEntry>& all) {
  ranks::add_gathers<Library, Indexed>(all, "indexed");
  ranks::add_gathers<Library, Packed>(all, "packed");
  ranks::add_gathers<Library, Collective>(all, "neighbor");
  ranks::add_indexed<Library, Indexed>(all, "indexed");
  ranks::add_indexed<Library, Packed>(all, "packed");
  ranks::add_indexed<Library, Collective>(all, "neighbor");
});

}  // namespace
}  // namespace memkern::mpi
