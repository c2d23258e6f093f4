// Gather, scatter, gather-scatter and their two-level forms on a GPU (Lavin et al., MEMSYS 2020).
// The indices are in the shared memory of the block, which moves several instances at once: each
// thread moves one element of `kUnroll` instances.
#include "families/spatter/args.hpp"

#include <algorithm>

#include "gpu/grid.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

using Op = SpatterOp;

constexpr int kThreads = 1024;
constexpr int kUnrolled = 4;

struct SpatterGridArgs {
  SpatterArgs a;
  Range range;
};

// Whether a value is one certain NaN, which no array contains. The compiler cannot know the result,
// so that it cannot remove the load of the value.
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
template <class I, Op kOp>
MEMKERN_ANYWHERE std::int64_t from_of(const SpatterArgs& a, const I* gather, std::int64_t j) {
  if constexpr (kOp == Op::MultiGather) return static_cast<const I*>(a.outer_index)[gather[j]];
  return gathers(kOp) ? static_cast<std::int64_t>(gather[j]) : j;
}
template <class I, Op kOp>
MEMKERN_ANYWHERE std::int64_t to_of(const SpatterArgs& a, const I* scatter, std::int64_t j) {
  if constexpr (kOp == Op::MultiScatter) return static_cast<const I*>(a.outer_index)[scatter[j]];
  return scatters(kOp) ? static_cast<std::int64_t>(scatter[j]) : j;
}

// For one delta and one row of the dense buffer, as in most patterns.
template <class T, class I, Op kOp, int kUnroll>
struct Move {
  using Args = SpatterGridArgs;
  using Locals = Nothing;
  static constexpr int kPhases = 2;

  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&,
                                   unsigned char* shared) {
    const SpatterArgs& a = g.a;
    I* gather = reinterpret_cast<I*>(shared);
    I* scatter = gather + (gathers(kOp) ? a.length : 0);
    if constexpr (kPhase == 0) {
      for (std::int64_t k = thread.thread; k < a.length; k += thread.threads) {
        if constexpr (gathers(kOp)) gather[k] = static_cast<const I*>(a.gather_index)[k];
        if constexpr (scatters(kOp)) scatter[k] = static_cast<const I*>(a.scatter_index)[k];
      }
    } else {
      const auto length = static_cast<int>(a.length < thread.threads ? a.length : thread.threads);
      const int rows = thread.threads / length;
      const int row = thread.thread / length;
      if (row >= rows) return;
      const std::int64_t first = g.range.begin + thread.block * rows * kUnroll + row;
      // A thread moves several elements if the pattern is longer than the block.
      MEMKERN_ROLLED
      for (std::int64_t j = thread.thread % length; j < a.length; j += length) {
        elements(g, first, rows, from_of<I, kOp>(a, gather, j), to_of<I, kOp>(a, scatter, j));
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

MEMKERN_ANYWHERE std::int64_t base(const SpatterArgs::Walk& walk, std::int64_t n) {
  return walk.origin + n / walk.cycle * walk.period + walk.prefix[n % walk.cycle];
}

// For any deltas, dense buffer and length: one element of one instance per thread.
template <class T, class I, Op kOp>
struct MoveAny {
  using Args = SpatterGridArgs;
  using Locals = Nothing;
  static constexpr int kPhases = 1;

  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    const SpatterArgs& a = g.a;
    const std::int64_t n = g.range.begin + thread.index() / a.length;
    if (n >= g.range.end) return;
    const std::int64_t j = thread.index() % a.length;
    const std::int64_t from = from_of<I, kOp>(a, static_cast<const I*>(a.gather_index), j);
    const std::int64_t to = to_of<I, kOp>(a, static_cast<const I*>(a.scatter_index), j);
    T* dense = static_cast<T*>(a.dense) + n % a.wrap * a.length;
    const T* source =
        gathers(kOp) ? static_cast<const T*>(a.source) + base(a.gather_walk, n) : dense;
    T* target = scatters(kOp) ? static_cast<T*>(a.target) + base(a.scatter_walk, n) : dense;
    const T value = source[from];
    if (scatters(kOp) || n >= g.range.end - a.wrap || is_rare(value)) target[to] = value;
  }
};

template <class T, class I, Op kOp, int kUnroll>
void start(const void* p, Range range, int threads, void* queue) {
  const SpatterArgs& a = *static_cast<const SpatterArgs*>(p);
  const std::int64_t lists = gathers(kOp) && scatters(kOp) ? 2 : 1;
  const std::int64_t shared_B = lists * a.length * std::int64_t{sizeof(I)};
  const bool simple = a.wrap == 1 && a.gather_walk.cycle == 1 && a.scatter_walk.cycle == 1;
  if (simple && shared_B <= kMaxShared_B) {
    const std::int64_t rows = a.length < threads ? threads / a.length : 1;
    in_grids(range, kMaxBlocks * rows * kUnroll, [&](Range part) {
      launch<Move<T, I, kOp, kUnroll>>({a, part}, blocks_for(part.end - part.begin, rows * kUnroll),
                                       threads, static_cast<std::size_t>(shared_B), queue);
    });
  } else {
    in_grids(range, std::max<std::int64_t>(kMaxBlocks * threads / a.length, 1), [&](Range part) {
      launch<MoveAny<T, I, kOp>>({a, part}, blocks_for((part.end - part.begin) * a.length, threads),
                                 threads, 0, queue);
    });
  }
}

// clang-format off
#define MEMKERN_BY(u, unrolled, name, op, T, I, dtype, index) \
  {{"spatter." name, "simt", dtype, index, nullptr, nullptr, u}, start<T, I, op, unrolled>},
#define MEMKERN_UNROLLED(...)                                                               \
  MEMKERN_BY(0, kUnrolled, __VA_ARGS__)                                                     \
  MEMKERN_BY(1, 1, __VA_ARGS__) MEMKERN_BY(2, 2, __VA_ARGS__)                               \
  MEMKERN_BY(4, 4, __VA_ARGS__) MEMKERN_BY(8, 8, __VA_ARGS__)
#define MEMKERN_TYPES(name, op)                                                             \
  MEMKERN_UNROLLED(name, op, double, std::int64_t, "float64", "int64")                      \
  MEMKERN_UNROLLED(name, op, double, std::int32_t, "float64", "int32")                      \
  MEMKERN_UNROLLED(name, op, float, std::int64_t, "float32", "int64")                       \
  MEMKERN_UNROLLED(name, op, float, std::int32_t, "float32", "int32")

constexpr DeviceEntry kEntries[] = {
    MEMKERN_TYPES("gather", Op::Gather)
    MEMKERN_TYPES("scatter", Op::Scatter)
    MEMKERN_TYPES("gs", Op::GatherScatter)
    MEMKERN_TYPES("multigather", Op::MultiGather)
    MEMKERN_TYPES("multiscatter", Op::MultiScatter)
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
