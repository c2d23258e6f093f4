// Gather, scatter, gather-scatter and their two-level forms on a GPU (Lavin et al., MEMSYS 2020).
// A grid of as many blocks as run at a time moves all instances, each thread one element of
// `kUnroll` instances at a time. An index that fits a block stays in registers, a longer one is in
// the block's shared memory, as is every one of the variant `shared`, which reads it for each
// instance as the paper's kernels do.
#pragma once

#include "families/spatter/args.hpp"

#include <algorithm>
#include <type_traits>

#include "gpu/divisor.hpp"
#include "gpu/grid.hpp"

namespace memkern::gpu {
namespace {

using Op = SpatterOp;

constexpr int kThreads = 256;
constexpr int kUnrolled = 4;

struct SpatterGridArgs {
  SpatterArgs a;
  Range range;
};

// Whether a value is a specific NaN, which no array contains. The compiler does not know the
// result, so it cannot remove the load of the value.
MEMKERN_ANYWHERE bool is_rare(double value) {
  std::uint64_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return bits == 0x7FF46D656D6B726EU;
}
MEMKERN_ANYWHERE bool is_rare(float value) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return bits == 0x7FA56D6BU;
}

// The index of element j of an instance in the sparse array or the dense buffer.
template <class I, Op kOp, class List>
MEMKERN_ANYWHERE std::int64_t from_of(const SpatterArgs& a, List gather, std::int64_t j) {
  if constexpr (kOp == Op::MultiGather) return static_cast<const I*>(a.outer_index)[gather[j]];
  return gathers(kOp) ? static_cast<std::int64_t>(gather[j]) : j;
}
template <class I, Op kOp, class List>
MEMKERN_ANYWHERE std::int64_t to_of(const SpatterArgs& a, List scatter, std::int64_t j) {
  if constexpr (kOp == Op::MultiScatter) return static_cast<const I*>(a.outer_index)[scatter[j]];
  return scatters(kOp) ? static_cast<std::int64_t>(scatter[j]) : j;
}

// For one delta and one row of the dense buffer, as in most patterns.
template <class T, class I, Op kOp, int kUnroll, bool kShared = false>
struct Move : Stateless<SpatterGridArgs, 2> {
  // Volatile, so that the compiler does not keep the index of the last instance in a register.
  using List = std::conditional_t<kShared, const volatile I*, const I*>;
  static constexpr int kMinBlocks = 1;

  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&,
                                   unsigned char* shared) {
    const SpatterArgs& a = g.a;
    I* gather = reinterpret_cast<I*>(shared);
    I* scatter = gather + (gathers(kOp) ? a.length : 0);
    const bool fits = a.length <= thread.threads;
    const bool in_registers = fits && !kShared;
    if constexpr (kPhase == 0) {
      if (in_registers) return;
      for (std::int64_t k = thread.thread; k < a.length; k += thread.threads) {
        if constexpr (gathers(kOp)) gather[k] = static_cast<const I*>(a.gather_index)[k];
        if constexpr (scatters(kOp)) scatter[k] = static_cast<const I*>(a.scatter_index)[k];
      }
    } else {
      const auto length = static_cast<int>(fits ? a.length : thread.threads);
      const int rows = thread.threads / length;
      const int row = thread.thread / length;
      if (row >= rows) return;
      const std::int64_t first = thread.thread - row * length;
      const I* gathered = in_registers ? static_cast<const I*>(a.gather_index) : gather;
      const I* scattered = in_registers ? static_cast<const I*>(a.scatter_index) : scatter;
      std::int64_t from = from_of<I, kOp>(a, gathered, first);
      std::int64_t to = to_of<I, kOp>(a, scattered, first);
      MEMKERN_ROLLED
      for (std::int64_t n = g.range.begin + thread.block * rows * kUnroll + row; n < g.range.end;
           n += thread.blocks * rows * kUnroll) {
        // Once, unless the pattern is longer than the block.
        MEMKERN_ROLLED
        for (std::int64_t j = first; j < a.length; j += length) {
          if (!in_registers) {
            from = from_of<I, kOp>(a, static_cast<List>(gather), j);
            to = to_of<I, kOp>(a, static_cast<List>(scatter), j);
          }
          elements(g, n, rows, from, to);
        }
      }
    }
  }

  // One element of the instances first, first + rows, first + 2 rows, ...
  MEMKERN_ANYWHERE static void elements(const Args& g, std::int64_t first, int rows,
                                        std::int64_t from, std::int64_t to) {
    const SpatterArgs& a = g.a;
    const std::int64_t gathered = gathers(kOp) ? a.gather_walk.period : 0;
    const std::int64_t scattered = scatters(kOp) ? a.scatter_walk.period : 0;
    const T* source = gathers(kOp) ? static_cast<const T*>(a.source) + a.gather_walk.origin
                                   : static_cast<const T*>(a.dense);
    T* target = scatters(kOp) ? static_cast<T*>(a.target) + a.scatter_walk.origin
                              : static_cast<T*>(a.dense);
    source += first * gathered + from;
    target += first * scattered + to;
    const std::int64_t left = g.range.end - first;
    // All loads are issued before the first value is needed.
    T values[kUnroll] = {};
    for (int u = 0; u < kUnroll; ++u) {
      if (u * rows < left) values[u] = source[u * rows * gathered];
    }
    for (int u = 0; u < kUnroll; ++u) {
      // The dense buffer keeps the last instance. The values of others are loaded and compared
      // only.
      const bool stores = scatters(kOp)
                              ? u * rows < left
                              : u * rows == left - 1 || (u * rows < left && is_rare(values[u]));
      if (stores) target[u * rows * scattered] = values[u];
    }
  }
};

struct MoveAnyArgs {
  SpatterArgs a;
  Range range;
  Divisor length;
  Divisor wrap;
  Divisor gather_cycle;
  Divisor scatter_cycle;
};

MEMKERN_ANYWHERE std::int64_t base(const SpatterArgs::Walk& walk, const Divisor& cycle,
                                   std::int64_t n) {
  const std::int64_t turn = cycle.quotient(n);
  return walk.origin + turn * walk.period + walk.prefix[n - turn * walk.cycle];
}

// For any deltas, dense buffer and length: one element of one instance per thread.
template <class T, class I, Op kOp>
struct MoveAny : Stateless<MoveAnyArgs> {
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    const SpatterArgs& a = g.a;
    const std::int64_t instance = g.length.quotient(thread.index());
    const std::int64_t n = g.range.begin + instance;
    if (n >= g.range.end) return;
    const std::int64_t j = thread.index() - instance * a.length;
    const std::int64_t from = from_of<I, kOp>(a, static_cast<const I*>(a.gather_index), j);
    const std::int64_t to = to_of<I, kOp>(a, static_cast<const I*>(a.scatter_index), j);
    T* dense = static_cast<T*>(a.dense) + (n - g.wrap.quotient(n) * a.wrap) * a.length;
    const T* source = gathers(kOp)
                          ? static_cast<const T*>(a.source) + base(a.gather_walk, g.gather_cycle, n)
                          : dense;
    T* target = scatters(kOp) ? static_cast<T*>(a.target) + base(a.scatter_walk, g.scatter_cycle, n)
                              : dense;
    const T value = source[from];
    if (scatters(kOp) || n >= g.range.end - a.wrap || is_rare(value)) target[to] = value;
  }
};

template <class T, class I, Op kOp, int kUnroll, bool kShared = false>
void start(const void* p, Range range, int threads, void* queue) {
  static_assert(SpatterArgs::kMaxLists_B <= kMaxShared_B);
  const SpatterArgs& a = *static_cast<const SpatterArgs*>(p);
  if (a.unrolls(sizeof(I))) {
    using K = Move<T, I, kOp, kUnroll, kShared>;
    const bool fits = a.length <= threads;
    const std::size_t lists = gathers(kOp) && scatters(kOp) ? 2 : 1;
    const bool in_registers = fits && !kShared;
    const std::size_t size =
        in_registers ? 0 : lists * static_cast<std::size_t>(a.length) * sizeof(I);
    const std::int64_t rows = fits ? threads / a.length : 1;
    launch<K>({a, range},
              std::min(blocks_for(range.end - range.begin, rows * kUnroll),
                       resident_blocks<K>(threads, size)),
              threads, size, queue);
  } else {
    in_grids(range, std::max<std::int64_t>(kMaxBlocks * threads / a.length, 1), [&](Range part) {
      launch<MoveAny<T, I, kOp>>({a, part, Divisor(a.length), Divisor(a.wrap),
                                  Divisor(a.gather_walk.cycle), Divisor(a.scatter_walk.cycle)},
                                 blocks_for((part.end - part.begin) * a.length, threads), threads,
                                 0, queue);
    });
  }
}

}  // namespace
}  // namespace memkern::gpu
