// Gather, scatter, gather-scatter and their two-level forms on a GPU (Lavin et al., MEMSYS 2020):
// the index buffer lies in the block's shared memory, and a block moves instances side by side,
// each thread one element of `kUnroll` of them.
#include "kernels/spatter.hpp"

#include <type_traits>

#include "backends/cuda/device.hpp"
#include "backends/cuda/grid.hpp"

namespace memkern::cuda {
namespace {

enum class Op { Gather, Scatter, GatherScatter, MultiGather, MultiScatter };
MEMKERN_ANYWHERE constexpr bool gathers(Op op) {
  return op == Op::Gather || op == Op::GatherScatter || op == Op::MultiGather;
}
MEMKERN_ANYWHERE constexpr bool scatters(Op op) {
  return op == Op::Scatter || op == Op::GatherScatter || op == Op::MultiScatter;
}

constexpr int kThreads = 1024;
constexpr int kUnrolled = 4;

struct SpatterGridArgs {
  SpatterArgs a;
  Range range;
  bool staged;  // whether the indices fit into shared memory
};

MEMKERN_ANYWHERE std::int64_t base(const SpatterArgs::Walk& walk, std::int64_t n) {
  if (walk.cycle == 1) return walk.origin + n * walk.period;
  return walk.origin + n / walk.cycle * walk.period + walk.prefix[n % walk.cycle];
}

// Whether a value has the bits of one that nothing else has, a NaN. Nobody can know this who has
// not loaded it.
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

template <class T, class I, Op kOp, int kUnroll>
struct Move {
  using Args = SpatterGridArgs;
  using Locals = Nothing;
  static constexpr int kPhases = 2;

  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&,
                                   unsigned char* shared) {
    const SpatterArgs& a = g.a;
    const I* gather = static_cast<const I*>(a.gather_index);
    const I* scatter = static_cast<const I*>(a.scatter_index);
    I* stage = reinterpret_cast<I*>(shared);
    if constexpr (kPhase == 0) {
      if (!g.staged) return;
      for (std::int64_t k = thread.thread; k < a.length; k += thread.threads) {
        if constexpr (gathers(kOp)) stage[k] = gather[k];
        if constexpr (scatters(kOp)) stage[k + (gathers(kOp) ? a.length : 0)] = scatter[k];
      }
    } else {
      if (g.staged) {
        gather = stage;
        scatter = stage + (gathers(kOp) ? a.length : 0);
      }
      const auto length = static_cast<int>(a.length < thread.threads ? a.length : thread.threads);
      const int rows = thread.threads / length;
      const int row = thread.thread / length;
      if (row >= rows) return;
      const std::int64_t first = g.range.begin + thread.block * rows * kUnroll + row;
      // A pattern as long as the block or longer takes several turns.
      for (std::int64_t j = thread.thread % length; j < a.length; j += length) {
        elements(g, first, rows, j, gather, scatter);
      }
    }
  }

  // Element j of instances `first`, `first` + `rows` and so on.
  MEMKERN_ANYWHERE static void elements(const Args& g, std::int64_t first, int rows, std::int64_t j,
                                        const I* gather, const I* scatter) {
    const SpatterArgs& a = g.a;
    const I* outer = static_cast<const I*>(a.outer_index);
    const T* source = static_cast<const T*>(a.source);
    T* dense = static_cast<T*>(a.dense);
    std::int64_t from = j;
    if constexpr (kOp == Op::Gather || kOp == Op::GatherScatter) from = gather[j];
    if constexpr (kOp == Op::MultiGather) from = outer[gather[j]];
    std::int64_t to = j;
    if constexpr (kOp == Op::Scatter || kOp == Op::GatherScatter) to = scatter[j];
    if constexpr (kOp == Op::MultiScatter) to = outer[scatter[j]];

    // All loads are on their way before the first value is needed.
    T values[kUnroll] = {};
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t n = first + u * rows;
      if (n >= g.range.end) break;
      if constexpr (gathers(kOp)) {
        values[u] = source[base(a.gather_walk, n) + from];
      } else {
        values[u] = dense[row_of(a, n) + from];
      }
    }
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t n = first + u * rows;
      if (n >= g.range.end) break;
      if constexpr (scatters(kOp)) {
        static_cast<T*>(a.target)[base(a.scatter_walk, n) + to] = values[u];
      } else if (n >= g.range.end - a.wrap || is_rare(values[u])) {
        // The dense buffer shows the last instances. All others are loaded, and looked at.
        dense[row_of(a, n) + to] = values[u];
      }
    }
  }

  MEMKERN_ANYWHERE static std::int64_t row_of(const SpatterArgs& a, std::int64_t n) {
    return a.wrap == 1 ? 0 : n % a.wrap * a.length;
  }
};

template <class T, class I, Op kOp, int kUnroll>
void start(const void* p, Range range, int block, void* queue) {
  const SpatterArgs& a = *static_cast<const SpatterArgs*>(p);
  const int threads = block == 0 ? kThreads : block;
  const std::int64_t lists = gathers(kOp) && scatters(kOp) ? 2 : 1;
  const std::int64_t shared_B = lists * a.length * std::int64_t{sizeof(I)};
  const bool staged = shared_B <= kMostShared_B;
  const std::int64_t rows = a.length < threads ? threads / a.length : 1;
  in_grids(range, kMostBlocks * rows * kUnroll, [&](Range part) {
    launch<Move<T, I, kOp, kUnroll>>({a, part, staged},
                                     blocks_for(part.end - part.begin, rows * kUnroll), threads,
                                     staged ? static_cast<std::size_t>(shared_B) : 0, queue);
  });
}

// clang-format off
#define MEMKERN_BY(u, unrolled, name, op, T, I, dtype, index) \
  {{"spatter." name, "simt", dtype, index, nullptr, nullptr, 0, u}, start<T, I, op, unrolled>},
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

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0]);

}  // namespace
}  // namespace memkern::cuda
