// Operations on elements of other ranks, which are accessed through index arrays (RaiderSTREAM).
// Each rank executes the iterations with the numbers of its own elements: it gathers operands into
// buffers, computes, and scatters the results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/gather.hpp"
#include "backends/ranks/planned.hpp"
#include "families/streaming/args.hpp"

namespace memkern::ranks {

#include "families/streaming/operations.inc"

// Elements of this rank, or buffers of as many.
template <class T>
struct OwnElements {
  using Value = T;
  T* stream[3] = {};
  T load(int k, std::int64_t i) const { return stream[k][i]; }
  void store(int k, std::int64_t i, T value) const { stream[k][i] = value; }
  static T add(T x, T y) { return x + y; }
  static T mul(T x, T y) { return x * y; }
  static T mul_add(T x, T y, T z) { return x * y + z; }
};

// The index arrays of a kernel's arrays, and whether indices have 64 bits.
struct Accesses {
  int index[3];
  bool wide;
};

template <class L, template <class, class> class Method, class T, class Op, int kStreams>
class IndexedKernel {
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

 public:
  using Args = StreamingArgs;
  static const void* key(const Args& args) { return args.stream[0]; }

  IndexedKernel(const Args& args, Range range, const Accesses& accesses)
      : alpha_(static_cast<T>(args.alpha)), beta_(static_cast<T>(args.beta)) {
    constexpr std::int64_t kSize = sizeof(T);
    const auto* const written = static_cast<const std::byte*>(args.stream[0]);
    const Range part = arrays<L>().own_part(written, args.rows * kSize);
    const Range own{std::clamp(part.begin / kSize, range.begin, range.end),
                    std::clamp(part.end / kSize, range.begin, range.end)};
    count_ = own.end - own.begin;
    for (int k = 0; k < kStreams; ++k) {
      const auto* const array = static_cast<const std::byte*>(args.stream[k]);
      if (accesses.index[k] == kDirect) {
        if (count_ == 0) continue;
        const auto place = arrays<L>().place_of(array + own.begin * kSize);
        elements_.stream[k] = reinterpret_cast<T*>(L::own(*place.memory) + place.at);
        continue;
      }
      buffers_[k].resize(static_cast<std::size_t>(count_));
      elements_.stream[k] = buffers_[k].data();
      const void* const index = args.index[accesses.index[k]];
      Moves moves;
      moves.dense = reinterpret_cast<std::byte*>(buffers_[k].data());
      moves.sparse_at = accesses.wide ? local_copy<L, std::int64_t>(index, own)
                                      : local_copy<L, std::int32_t>(index, own);
      moves.dense_at.resize(buffers_[k].size());
      std::iota(moves.dense_at.begin(), moves.dense_at.end(), 0);
      moves_[k] = std::make_unique<Method<L, Word>>(array, k > 0, std::move(moves));
    }
  }

  void run(const Settings& settings) const {
    for (int k = 1; k < kStreams; ++k) {
      if (moves_[k] != nullptr) moves_[k]->run(settings);
    }
    for (std::int64_t i = 0; i < count_; ++i) Op::step(elements_, i, alpha_, beta_);
    if (moves_[0] != nullptr) moves_[0]->run(settings);
  }

 private:
  T alpha_;
  T beta_;
  std::int64_t count_ = 0;
  OwnElements<T> elements_;
  std::vector<T> buffers_[kStreams];
  std::unique_ptr<Method<L, Word>> moves_[kStreams];
};

// The entry of a kernel with the index arrays By.
template <class Kernel, class By>
struct IndexedEntry : Planned<Kernel> {
  static void prepare(const void* p, Range range, int, void*) {
    constexpr Accesses kAccesses{{By::of(0), By::of(1), By::of(2)}, sizeof(typename By::I) == 8};
    Planned<Kernel>::construct(*static_cast<const StreamingArgs*>(p), range, kAccesses);
  }
  static DeviceEntry entry(Entry of) {
    of.indices = By::kIndices;
    return {of, Planned<Kernel>::launch, 1, prepare};
  }
};

// Adds the entries of a method.
template <class L, template <class, class> class Method>
void add_indexed(std::vector<DeviceEntry>& all, const char* variant) {
#define MEMKERN_WIDE double
#define MEMKERN_NARROW float
#define MEMKERN_STORE(...)
#define MEMKERN_CENTRAL(...)
#define MEMKERN_ONE(name, Op, arrays, T, I, type, ...)                                             \
  all.push_back(                                                                                   \
      IndexedEntry<IndexedKernel<L, Method, T, Op, arrays_in(arrays)>, By<I, __VA_ARGS__>>::entry( \
          {name, variant, sizeof(T) == 8 ? "float64" : "float32", type, nullptr, nullptr}));
#include "families/raider/entries.inc"
#undef MEMKERN_WIDE
#undef MEMKERN_NARROW
#undef MEMKERN_STORE
#undef MEMKERN_CENTRAL
#undef MEMKERN_ONE
#undef MEMKERN_INDEXED
}

}  // namespace memkern::ranks
