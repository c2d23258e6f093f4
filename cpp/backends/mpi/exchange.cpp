#include "backends/mpi/exchange.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "core/errors.hpp"

namespace memkern::mpi {
namespace {

constexpr int kTag = 20;
// Polls before the processor is yielded and the time is checked.
constexpr int kPolls = 500;

std::string outside(const char* what, std::int64_t value, std::int64_t bound) {
  return std::string("an exchange has ") + what + " " + std::to_string(value) + ", outside 0 to " +
         std::to_string(bound - 1);
}

std::int64_t count_of(const std::vector<std::int64_t>& positions) { return std::ssize(positions); }

// Elements are copied as words of their size.
template <class F>
void with_word(std::int64_t element_B, const F& f) {
  if (element_B == 8) {
    f(std::uint64_t{});
  } else {
    f(std::uint32_t{});
  }
}

}  // namespace

PackedExchange::Blocks::Blocks(const std::vector<Message>& messages) {
  for (const Message& m : messages) {
    ranks.push_back(m.rank);
    counts.push_back(static_cast<int>(m.count));
    first.push_back(static_cast<int>(m.first));
  }
}

PackedExchange::PackedExchange(const Plan& plan)
    : adds_(plan.adds), timeout_s_(plan.timeout_s), collective_(plan.collective) {
  const int ranks = Library::ranks();
  std::vector<std::int64_t> sent(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> coming(sent.size());
  std::string wrong = add(plan);
  if (wrong.empty()) {
    for (const Message& m : sends_) sent[static_cast<std::size_t>(m.rank)] = m.count;
  }
  MPI_Alltoall(sent.data(), 1, MPI_INT64_T, coming.data(), 1, MPI_INT64_T, Library::processes());
  for (const Message& m : receives_) {
    auto& left = coming[static_cast<std::size_t>(m.rank)];
    if (wrong.empty() && left != m.count) {
      wrong = "rank " + std::to_string(m.rank) + " sends " + std::to_string(left) +
              " elements to rank " + std::to_string(Library::rank()) + ", which receives " +
              std::to_string(m.count);
    }
    left = 0;
  }
  for (int r = 0; r < ranks && wrong.empty(); ++r) {
    if (const std::int64_t left = coming[static_cast<std::size_t>(r)]; left != 0) {
      wrong = "rank " + std::to_string(r) + " sends " + std::to_string(left) +
              " elements to rank " + std::to_string(Library::rank()) + ", which receives none";
    }
  }
  int any = wrong.empty() ? 0 : 1;
  MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, Library::processes());
  if (any != 0) {
    throw InputError(wrong.empty() ? "the plan of an exchange is wrong on another rank" : wrong);
  }
  if (collective_) make_graph();
}

PackedExchange::~PackedExchange() {
  release();
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && graph_ != MPI_COMM_NULL) MPI_Comm_free(&graph_);
}

void PackedExchange::make_graph() {
  sent_to_ = Blocks(sends_);
  from_each_ = Blocks(receives_);
  MPI_Dist_graph_create_adjacent(Library::processes(), static_cast<int>(from_each_.ranks.size()),
                                 from_each_.ranks.data(), MPI_UNWEIGHTED,
                                 static_cast<int>(sent_to_.ranks.size()), sent_to_.ranks.data(),
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph_);
}

std::string PackedExchange::add(const Plan& plan) {
  const std::int64_t most = std::numeric_limits<int>::max();
  std::set<int> known;
  for (const Neighbour& n : plan.neighbours) {
    if (n.rank < 0 || n.rank >= Library::ranks()) {
      return outside("the neighbour", n.rank, Library::ranks());
    }
    if (!known.insert(n.rank).second) {
      return "an exchange has the neighbour " + std::to_string(n.rank) + " twice";
    }
    if (count_of(n.sent) > most) return outside("a message of length", count_of(n.sent), most + 1);
    if (n.received < 0 || n.received > most) {
      return outside("a message of length", n.received, most + 1);
    }
    for (const std::int64_t position : n.sent) {
      if (position < 0) return "an exchange has the negative position " + std::to_string(position);
    }
    if (!n.sent.empty()) sends_.push_back({n.rank, count_of(sent_), count_of(n.sent)});
    if (n.received > 0) receives_.push_back({n.rank, received_, n.received});
    sent_.insert(sent_.end(), n.sent.begin(), n.sent.end());
    received_ += n.received;
  }
  if (plan.to.size() != plan.of.size()) {
    return "an exchange has " + std::to_string(plan.to.size()) + " targets for " +
           std::to_string(plan.of.size()) + " received elements";
  }
  for (const std::int64_t position : plan.to) {
    if (position < 0) return "an exchange has the negative position " + std::to_string(position);
  }
  for (const std::int64_t number : plan.of) {
    if (number < 0 || number >= received_)
      return outside("the received element", number, received_);
  }
  if (collective_ && std::max(count_of(sent_), received_) > most) {
    return outside("a total length of", std::max(count_of(sent_), received_), most + 1);
  }
  add_targets(plan);
  return {};
}

void PackedExchange::add_targets(const Plan& plan) {
  // Elements for the same target are adjacent, so that workers never write to the same one.
  std::vector<std::size_t> order(plan.to.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return plan.to[a] < plan.to[b]; });
  for (const std::size_t k : order) {
    if (targets_.empty() || targets_.back() != plan.to[k]) {
      targets_.push_back(plan.to[k]);
      starts_.push_back(count_of(of_));
    }
    of_.push_back(plan.of[k]);
  }
  starts_.push_back(count_of(of_));
  in_place_ = !adds_ && count_of(of_) == received_ && count_of(targets_) == received_;
  for (std::int64_t k = 0; k < received_ && in_place_; ++k) {
    const auto at = static_cast<std::size_t>(k);
    in_place_ = of_[at] == k && targets_[at] == targets_.front() + k;
  }
}

void PackedExchange::bind(const char* dtype, const std::byte* from, std::int64_t from_elements,
                          std::byte* to, std::int64_t to_elements) {
  const std::string type = dtype;
  floating_ = type.starts_with("float");
  if (adds_ && !floating_) throw InputError("an exchange does not add elements of type " + type);
  element_B_ = type.ends_with("64") ? 8 : 4;
  const auto check = [](const std::vector<std::int64_t>& positions, std::int64_t elements) {
    const auto last = std::max_element(positions.begin(), positions.end());
    if (last != positions.end() && *last >= elements) {
      throw InputError(outside("the position", *last, elements));
    }
  };
  check(sent_, from_elements);
  check(targets_, to_elements);
  release();
  from_ = from;
  to_ = to;
  out_.assign(sent_.size(), 0);
  in_.assign(in_place_ ? 0 : static_cast<std::size_t>(received_), 0);
  word_ = element_B_ == 8 ? MPI_UINT64_T : MPI_UINT32_T;
  received_at_ = reinterpret_cast<std::byte*>(in_.data());
  if (in_place_ && received_ > 0) received_at_ = to_ + targets_.front() * element_B_;
  if (collective_) {
    requests_.push_back(MPI_REQUEST_NULL);
    return;
  }
  for (const Message& m : receives_) {
    MPI_Recv_init(received_at_ + m.first * element_B_, static_cast<int>(m.count), word_, m.rank,
                  kTag, Library::processes(), &requests_.emplace_back());
  }
  for (const Message& m : sends_) {
    MPI_Send_init(reinterpret_cast<std::byte*>(out_.data()) + m.first * element_B_,
                  static_cast<int>(m.count), word_, m.rank, kTag, Library::processes(),
                  &requests_.emplace_back());
  }
}

void PackedExchange::release() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  // The request of a collective is gone when it is complete.
  if (finalized == 0 && !collective_) {
    for (MPI_Request& request : requests_) MPI_Request_free(&request);
  }
  requests_.clear();
}

void PackedExchange::pack(Range range) {
  with_word(element_B_, [&]<class W>(W) {
    const W* from = reinterpret_cast<const W*>(from_);
    W* out = reinterpret_cast<W*>(out_.data());
    const std::int64_t* sent = sent_.data();
    for (std::int64_t k = range.begin; k < range.end; ++k) out[k] = from[sent[k]];
  });
}

void PackedExchange::start() {
  if (collective_) {
    MPI_Ineighbor_alltoallv(out_.data(), sent_to_.counts.data(), sent_to_.first.data(), word_,
                            received_at_, from_each_.counts.data(), from_each_.first.data(), word_,
                            graph_, requests_.data());
    return;
  }
  if (!requests_.empty()) MPI_Startall(static_cast<int>(requests_.size()), requests_.data());
}

void PackedExchange::finish() {
  if (requests_.empty()) return;
  const auto count = static_cast<int>(requests_.size());
  double begin_s = 0.0;
  for (int polls = 1;; ++polls) {
    int done = 0;
    MPI_Testall(count, requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) return;
    if (polls < kPolls) continue;
    polls = 0;
    // A neighbour may be waiting for this processor.
    sched_yield();
    const double time_s = MPI_Wtime();
    if (begin_s == 0.0) begin_s = time_s;
    if (time_s - begin_s > timeout_s_) give_up();
  }
}

void PackedExchange::give_up() {
  // Receives come first.
  for (std::size_t k = 0; k < requests_.size(); ++k) {
    int done = 0;
    MPI_Request_get_status(requests_[k], &done, MPI_STATUS_IGNORE);
    if (done != 0) continue;
    std::ostringstream told;
    told << "memkern: rank " << Library::rank() << " has waited " << timeout_s_
         << " s for an exchange with ";
    if (collective_) {
      told << "its neighbours";
    } else {
      told << "rank "
           << (k < receives_.size() ? receives_[k].rank : sends_[k - receives_.size()].rank);
    }
    told << ": all ranks end (MEMKERN_RANK_TIMEOUT_S sets after how long)\n";
    // In one piece, because other processes write as well.
    std::cerr << told.str();
    // MPICH's launcher loses the last output.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    break;
  }
  MPI_Abort(Library::processes(), 1);
  std::abort();
}

void PackedExchange::unpack(Range range) {
  const auto all = [&]<class T>(T) {
    const T* in = reinterpret_cast<const T*>(in_.data());
    T* to = reinterpret_cast<T*>(to_);
    for (std::int64_t t = range.begin; t < range.end; ++t) {
      const auto at = static_cast<std::size_t>(t);
      T value = adds_ ? to[targets_[at]] : T{};
      for (std::int64_t k = starts_[at]; k < starts_[at + 1]; ++k) {
        const T received = in[of_[static_cast<std::size_t>(k)]];
        value = adds_ ? value + received : received;
      }
      to[targets_[at]] = value;
    }
  };
  if (!adds_) {
    with_word(element_B_, all);
  } else if (element_B_ == 8) {
    all(double{});
  } else {
    all(float{});
  }
}

}  // namespace memkern::mpi
