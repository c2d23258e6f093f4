// Streaming kernels on a GPU, of any family, and the macros that make entries of them. A thread
// accesses 16 bytes at a time if all arrays have the same alignment.
#pragma once

#include "families/streaming/args.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "gpu/grid.hpp"
#include "gpu/instructions.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

#include "families/streaming/operations.inc"

// Limits the unrolling of the next loop: by default the compiler unrolls more, which needs
// registers and so reduces the number of threads.
#ifdef MEMKERN_ON_DEVICE
#define MEMKERN_PRAGMA(text) _Pragma(#text)
#define MEMKERN_UNROLL(most) MEMKERN_PRAGMA(unroll(most))
#else
#define MEMKERN_UNROLL(most)
#endif

constexpr int kThreads = 256;
constexpr int kMapUnroll = 2;
// Four loads of vectors per thread are in flight.
template <int kStreams>
inline constexpr int kReduceUnroll = 4 / kStreams;
constexpr int kPeakUnroll = 8;

// Accessors, by which an operation loads and stores: single elements, or 16 bytes of them.
template <class T>
struct Single {
  using Element = T;
  using Value = T;
  static constexpr int kLanes = 1;
  const StreamingArgs& args;
  // The element that iteration i accesses of array k, and accesses by that element.
  MEMKERN_ANYWHERE std::int64_t at(int, std::int64_t i) const { return i; }
  MEMKERN_ANYWHERE T load(int k, std::int64_t i) const {
    return static_cast<const T*>(args.stream[k])[i];
  }
  MEMKERN_ANYWHERE void store(int k, std::int64_t i, T value) const {
    static_cast<T*>(args.stream[k])[i] = value;
  }
  MEMKERN_ANYWHERE static T set(double value) { return static_cast<T>(value); }
  MEMKERN_ANYWHERE static T add(T x, T y) { return x + y; }
  MEMKERN_ANYWHERE static T mul(T x, T y) { return x * y; }
  MEMKERN_ANYWHERE static T mul_add(T x, T y, T z) { return x * y + z; }
  MEMKERN_ANYWHERE static T larger(T x, T y) { return x > y ? x : y; }
  MEMKERN_ANYWHERE static T lane(T x, int) { return x; }
};

template <class T>
struct Packed {
  using Element = T;
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  struct alignas(16) Value {
    T lanes[kLanes];
  };
  using One = Single<T>;
  const StreamingArgs& args;
  MEMKERN_ANYWHERE std::int64_t at(int, std::int64_t i) const { return i; }
  MEMKERN_ANYWHERE Value load(int k, std::int64_t i) const {
    return *reinterpret_cast<const Value*>(static_cast<const T*>(args.stream[k]) + i);
  }
  MEMKERN_ANYWHERE void store(int k, std::int64_t i, Value value) const {
    *reinterpret_cast<Value*>(static_cast<T*>(args.stream[k]) + i) = value;
  }
  MEMKERN_ANYWHERE static Value set(double value) {
    Value all;
    for (int l = 0; l < kLanes; ++l) all.lanes[l] = One::set(value);
    return all;
  }
  MEMKERN_ANYWHERE static Value add(Value x, Value y) {
    for (int l = 0; l < kLanes; ++l) x.lanes[l] = One::add(x.lanes[l], y.lanes[l]);
    return x;
  }
  MEMKERN_ANYWHERE static Value mul(Value x, Value y) {
    for (int l = 0; l < kLanes; ++l) x.lanes[l] = One::mul(x.lanes[l], y.lanes[l]);
    return x;
  }
  MEMKERN_ANYWHERE static Value mul_add(Value x, Value y, Value z) {
    for (int l = 0; l < kLanes; ++l) x.lanes[l] = One::mul_add(x.lanes[l], y.lanes[l], z.lanes[l]);
    return x;
  }
  MEMKERN_ANYWHERE static Value larger(Value x, Value y) {
    for (int l = 0; l < kLanes; ++l) x.lanes[l] = One::larger(x.lanes[l], y.lanes[l]);
    return x;
  }
  MEMKERN_ANYWHERE static T lane(const Value& x, int l) { return x.lanes[l]; }
};

// An operation on several values at once runs twice: the first pass only loads values, and the
// indices of those that are stored, so that all loads are issued before the first one is needed;
// the second pass uses the loaded values and stores. (The compiler cannot reorder loads and stores
// itself, because they may alias.)
template <class A, bool kLoaded>
struct Staged : A {
  using typename A::Value;
  Value* values;         // one per array
  std::int64_t* places;  // likewise
  MEMKERN_ANYWHERE Staged(const A& a, Value* v, std::int64_t* p) : A(a), values(v), places(p) {}
  MEMKERN_ANYWHERE Value load(int k, std::int64_t i) const {
    if constexpr (!kLoaded) values[k] = A::load(k, A::at(k, i));
    return values[k];
  }
  MEMKERN_ANYWHERE void store(int k, std::int64_t i, Value value) const {
    if constexpr (kLoaded) {
      A::store(k, places[k], value);
    } else {
      places[k] = A::at(k, i);
    }
  }
};

template <class A>
inline constexpr bool kIsLoading = false;
template <class A>
inline constexpr bool kIsLoading<const Staged<A, false>&> = true;

// Number of values that a thread loads at once: they and the sums must fit into the registers that
// a thread of a full block has.
template <class A, int kStreams, int kUnroll>
inline constexpr int kBatchSize = std::min(kUnroll, kStreams > 2 && A::kLanes > 1 ? 2 : 4);

struct StreamingGridArgs {
  StreamingArgs a;
  Range range;
  Range whole;      // the part of it that consists of whole values of the accessor
  bool one_kernel;  // the last block of a reduction combines the results of all blocks
};

// Hides the origin of an index from the compiler, which would otherwise keep a pointer for each
// array and step, more than there are registers, and split the stores of vectors.
MEMKERN_ANYWHERE void make_opaque([[maybe_unused]] std::int64_t& i) {
#ifdef __CUDA_ARCH__
  asm("" : "+l"(i));
#endif
}

// Calls step(accessor, element, u) for kUnroll values from element i on; with kBounded, only for
// elements before `end`.
template <int kStreams, int kUnroll, bool kBounded, class A, class Step>
MEMKERN_ANYWHERE void steps(const A& accessor, std::int64_t i, std::int64_t stride,
                            std::int64_t end, const Step& step) {
  constexpr int kBatch = kBatchSize<A, kStreams, kUnroll>;
  for (int done = 0; done < kUnroll; done += kBatch, i += kBatch * stride) {
    std::int64_t at[kBatch];
    typename A::Value values[kBatch][StreamingArgs::kMaxStreams];
    std::int64_t places[kBatch][StreamingArgs::kMaxStreams];
    for (int u = 0; u < kBatch; ++u) {
      at[u] = i + u * stride;
      make_opaque(at[u]);
      if (!kBounded || at[u] < end)
        step(Staged<A, false>(accessor, values[u], places[u]), at[u], u);
    }
    for (int u = 0; u < kBatch; ++u) {
      if (!kBounded || at[u] < end) step(Staged<A, true>(accessor, values[u], places[u]), at[u], u);
    }
  }
}

// Calls fn(element) for the elements of the range before and after the whole values.
template <class A, class Fn>
MEMKERN_ANYWHERE void for_remainder(const StreamingGridArgs& g, const Thread& thread,
                                    const Fn& fn) {
  if (A::kLanes == 1) return;
  const std::int64_t skipped = g.whole.end - g.whole.begin;
  MEMKERN_UNROLL(1)
  for (std::int64_t i = g.range.begin + thread.index(); i < g.range.end - skipped;
       i += thread.total()) {
    fn(i < g.whole.begin ? i : i + skipped);
  }
}

template <class A, class Op, int kStreams, int kUnroll>
struct Map : Stateless<StreamingGridArgs> {
  static constexpr int kMinBlocks = 1;
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    const auto alpha = A::set(g.a.alpha);
    const auto beta = A::set(g.a.beta);
    const std::int64_t first = thread.block * thread.threads * kUnroll + thread.thread;
    steps<kStreams, kUnroll, true>(
        A{g.a}, g.whole.begin + first * A::kLanes, thread.threads * A::kLanes, g.whole.end,
        [&](const auto& a, std::int64_t i, int) { Op::step(a, i, alpha, beta); });
    for_remainder<A>(g, thread, [&](std::int64_t i) {
      using One = Single<typename A::Element>;
      Op::step(One{g.a}, i, One::set(g.a.alpha), One::set(g.a.beta));
    });
  }
};

template <bool kSums, class A, class V = typename A::Value>
MEMKERN_ANYWHERE V join(V x, V y) {
  return kSums ? A::add(x, y) : A::larger(x, y);
}

using Double = Single<double>;

// Combines results of threads.
template <bool kAdds>
struct Joining {
  static constexpr bool kSums = kAdds;
  MEMKERN_ANYWHERE static double join(double x, double y) { return gpu::join<kAdds, Double>(x, y); }
};

// A thread's result, then its warp's, then its block's.
struct ReductionLocals {
  double value;
};
// Results of the warps of a block, and whether it is the last one of its grid.
constexpr int kMaxWarps = kMaxThreads / kWarp;
constexpr std::size_t kReducing_B = (kMaxWarps + 1) * sizeof(double);

MEMKERN_ANYWHERE void store_of_warp(const Thread& thread, double value, double* found) {
  if (thread.thread % kWarp == 0) found[thread.thread / kWarp] = value;
}
template <class Join>
MEMKERN_ANYWHERE double load_for_block(const Thread& thread, const double* found) {
  return thread.thread * kWarp < thread.threads ? found[thread.thread] : kStart<Join>;
}
// The results of a warp's threads are combined after every second phase.
template <class Join, int kPhase>
using AfterReduction = std::conditional_t<kPhase % 2 == 0, JoinWarp<Join>, AllThreads>;

// Combines the partial results of `blocks` blocks.
struct CombineArgs {
  const double* partial;
  double* result;
  std::int64_t blocks;
};
template <bool kSums>
struct Combine {
  using Args = CombineArgs;
  using Locals = ReductionLocals;
  using Join = Joining<kSums>;
  static constexpr int kPhases = 4;
  template <int kPhase>
  using After = AfterReduction<Join, kPhase>;

  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& c, const Thread& thread, Locals& locals,
                                   unsigned char* shared) {
    double* found = reinterpret_cast<double*>(shared);
    if constexpr (kPhase == 0) {
      // Volatile, because other blocks of the same grid may have written them.
      const volatile double* partial = c.partial;
      locals.value = kStart<Join>;
      for (std::int64_t k = thread.thread; k < c.blocks; k += thread.threads) {
        locals.value = Join::join(locals.value, partial[k]);
      }
    } else if constexpr (kPhase == 1) {
      store_of_warp(thread, locals.value, found);
    } else if constexpr (kPhase == 2) {
      locals.value = load_for_block<Join>(thread, found);
    } else if (thread.thread == 0) {
      *c.result = locals.value;
    }
  }
};

// Whether this is the last of `blocks` blocks to call it. The last block sees all writes of the
// others, and resets the count for the next invocation.
MEMKERN_ANYWHERE bool is_last_block(unsigned* count, std::int64_t blocks) {
  const bool last = count_in_order(count) + 1 == blocks;
  if (last) *count = 0;
  return last;
}

// Values per accumulator that a thread sums in the type of the values. These sums are added in
// double, to limit the rounding error of long sums.
constexpr int kBlock = 1024;

// A reduction writes a partial result for each block; the last block may combine them. R::reduced
// returns the result of a thread.
template <class R, class Op>
struct Reducing {
  using Args = StreamingGridArgs;
  using Locals = ReductionLocals;
  using Join = Joining<Op::kSums>;
  static constexpr int kPhases = 8;
  static constexpr int kMinBlocks = 1;
  template <int kPhase>
  using After = AfterReduction<Join, kPhase>;

  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals& locals,
                                   unsigned char* shared) {
    double* found = reinterpret_cast<double*>(shared);
    bool* last = reinterpret_cast<bool*>(found + kMaxWarps);
    if constexpr (kPhase == 0) {
      locals.value = R::reduced(g, thread);
    } else if constexpr (kPhase == 1) {
      store_of_warp(thread, locals.value, found);
    } else if constexpr (kPhase == 2) {
      locals.value = load_for_block<Join>(thread, found);
    } else if constexpr (kPhase == 3) {
      if (thread.thread != 0) return;
      g.a.partial[thread.block] = locals.value;
      auto* count = reinterpret_cast<unsigned*>(g.a.partial + StreamingArgs::kMaxReducingBlocks);
      *last = g.one_kernel && is_last_block(count, thread.blocks);
    } else if (*last) {
      Combine<Op::kSums>::template run<kPhase - 4>({g.a.partial, g.a.result, thread.blocks}, thread,
                                                   locals, shared);
    }
  }
};

template <class A, class Op, int kStreams, int kUnroll>
struct Reduce : Reducing<Reduce<A, Op, kStreams, kUnroll>, Op> {
  using V = typename A::Value;
  static constexpr int kBatch = kBatchSize<A, kStreams, kUnroll>;

  MEMKERN_ANYWHERE static double reduced(const StreamingGridArgs& g, const Thread& thread) {
    const A accessor{g.a};
    const V alpha = A::set(g.a.alpha);
    const std::int64_t stride = thread.total() * A::kLanes;
    double all = kStart<Op>;
    for_remainder<A>(g, thread, [&](std::int64_t at) {
      using One = Single<typename A::Element>;
      const auto one = Op::step(One{g.a}, at, One::set(g.a.alpha), One::set(kStart<Op>));
      all = join<Op::kSums, Double>(all, static_cast<double>(one));
    });
    V sums[kBatch];
    const auto step = [&](const auto& a, std::int64_t at, int u) {
      const V sum = Op::step(a, at, alpha, sums[u]);
      if constexpr (!kIsLoading<decltype(a)>) sums[u] = sum;
    };
    // Full steps without checks of the bound, then the rest.
    const std::int64_t last_offset = (kUnroll - 1) * stride;
    std::int64_t i = g.whole.begin + thread.index() * A::kLanes;
    while (i + last_offset < g.whole.end) {
      for (int u = 0; u < kBatch; ++u) sums[u] = A::set(kStart<Op>);
      MEMKERN_UNROLL(1)
      for (int k = 0; k < kBlock * kBatch && i + last_offset < g.whole.end;
           k += kUnroll, i += kUnroll * stride) {
        steps<kStreams, kUnroll, false>(accessor, i, stride, 0, step);
      }
      for (int u = 1; u < kBatch; ++u) sums[0] = join<Op::kSums, A>(sums[0], sums[u]);
      add(all, sums[0]);
    }
    if constexpr (kUnroll > 1) {
      sums[0] = A::set(kStart<Op>);
      MEMKERN_UNROLL(1)
      for (; i < g.whole.end; i += stride) step(accessor, i, 0);
      add(all, sums[0]);
    }
    return all;
  }

  MEMKERN_ANYWHERE static void add(double& all, const V& sum) {
    for (int l = 0; l < A::kLanes; ++l) {
      all = join<Op::kSums, Double>(all, static_cast<double>(A::lane(sum, l)));
    }
  }
};

// Without arrays: every iteration adds to an accumulator. Accumulators start with different values,
// or the compiler merges them.
template <class A, class Op, int kUnroll>
struct Reduce<A, Op, 0, kUnroll> : Reducing<Reduce<A, Op, 0, kUnroll>, Op> {
  MEMKERN_ANYWHERE static double reduced(const StreamingGridArgs& g, const Thread& thread) {
    const A accessor{g.a};
    const auto alpha = A::set(g.a.alpha);
    double all = 0.0;
    const std::int64_t count = g.range.end - g.range.begin;
    std::int64_t left = (count - thread.index() + thread.total() - 1) / thread.total();
    while (left > 0) {
      const int most = kBlock * kUnroll;
      const int steps = left < most ? static_cast<int>(left) : most;
      typename A::Value sums[kUnroll];
      for (int u = 0; u < kUnroll; ++u) sums[u] = A::set(u);
      int k = 0;
      MEMKERN_UNROLL(4)
      for (; k + kUnroll <= steps; k += kUnroll) {
        for (int u = 0; u < kUnroll; ++u) sums[u] = Op::step(accessor, 0, alpha, sums[u]);
      }
      for (; k < steps; ++k) sums[0] = Op::step(accessor, 0, alpha, sums[0]);
      for (int u = 1; u < kUnroll; ++u) sums[0] = A::add(sums[0], sums[u]);
      all += static_cast<double>(sums[0]) - kUnroll * (kUnroll - 1) / 2;
      left -= steps;
    }
    return all;
  }
};

constexpr std::int64_t kVector_B = 16;

// Whether all arrays have the same alignment, so that vectors of all of them can be aligned.
bool equally_aligned(const StreamingArgs& a, int streams) {
  for (int k = 1; k < streams; ++k) {
    const std::uintptr_t apart = reinterpret_cast<std::uintptr_t>(a.stream[k]) -
                                 reinterpret_cast<std::uintptr_t>(a.stream[0]);
    if (apart % kVector_B != 0) return false;
  }
  return true;
}

template <class A>
StreamingGridArgs grid_args(const StreamingArgs& a, Range range) {
  Range whole = range;
  if (A::kLanes > 1) {
    using T = typename A::Element;
    const auto address =
        reinterpret_cast<std::uintptr_t>(static_cast<T*>(a.stream[0]) + range.begin);
    const auto front = static_cast<std::int64_t>(-address % kVector_B / sizeof(T));
    whole.begin = std::min(range.begin + front, range.end);
    whole.end = range.end - (range.end - whole.begin) % A::kLanes;
  }
  return {a, range, whole, false};
}

template <class A, class Op, int kStreams, int kUnroll>
void map_by(const StreamingArgs& a, Range range, int threads, void* queue) {
  const std::int64_t each = std::int64_t{threads} * kUnroll * A::kLanes;
  in_grids(range, kMaxBlocks * each, [&](Range part) {
    const StreamingGridArgs g = grid_args<A>(a, part);
    launch<Map<A, Op, kStreams, kUnroll>>(g, blocks_for(part.end - part.begin, each), threads, 0,
                                          queue);
  });
}

template <class T, class Op, int kStreams, int kRequested>
void map(const void* p, Range range, int threads, void* queue) {
  const StreamingArgs& a = *static_cast<const StreamingArgs*>(p);
  if (equally_aligned(a, kStreams)) {
    constexpr int kUnroll = kRequested == 0 ? kMapUnroll : kRequested;
    map_by<Packed<T>, Op, kStreams, kUnroll>(a, range, threads, queue);
  } else {
    map_by<Single<T>, Op, kStreams, kMapUnroll>(a, range, threads, queue);
  }
}

template <class A, class Op, int kStreams, int kUnroll>
void reduce_by(const StreamingArgs& a, Range range, bool one_kernel, int threads, void* queue) {
  StreamingGridArgs g = grid_args<A>(a, range);
  g.one_kernel = one_kernel;
  using K = Reduce<A, Op, kStreams, kUnroll>;
  const std::int64_t most = a.blocks > 0 ? a.blocks : resident_blocks<K>(threads, kReducing_B);
  const std::int64_t blocks =
      std::min({blocks_for(range.end - range.begin, std::int64_t{threads} * A::kLanes), most,
                std::int64_t{StreamingArgs::kMaxReducingBlocks}});
  launch<K>(g, blocks, threads, kReducing_B, queue);
  if (one_kernel) return;
  launch<Combine<Op::kSums>>({a.partial, a.result, blocks}, 1, threads, kReducing_B, queue);
}

template <class T, class Op, int kStreams, int kRequested, bool kOneKernel>
void reduce(const void* p, Range range, int threads, void* queue) {
  const StreamingArgs& a = *static_cast<const StreamingArgs*>(p);
  if constexpr (kStreams == 0) {
    constexpr int kUnroll = kRequested == 0 ? kPeakUnroll : kRequested;
    reduce_by<Single<T>, Op, kStreams, kUnroll>(a, range, kOneKernel, threads, queue);
  } else if (equally_aligned(a, kStreams)) {
    constexpr int kUnroll = kRequested == 0 ? kReduceUnroll<kStreams> : kRequested;
    reduce_by<Packed<T>, Op, kStreams, kUnroll>(a, range, kOneKernel, threads, queue);
  } else {
    reduce_by<Single<T>, Op, kStreams, kReduceUnroll<kStreams>>(a, range, kOneKernel, threads,
                                                                queue);
  }
}

// Entries for one type; kRequested values per step, or the default if that is 0.
template <class T, class Op, int kStreams, int kRequested>
DeviceEntry map_entry(const char* kernel) {
  return {{kernel, "simt", name_of_type<T>(), "", nullptr, nullptr, kRequested},
          map<T, Op, kStreams, kRequested>};
}
template <class T, class Op, int kStreams, int kRequested, bool kOneKernel>
DeviceEntry reduce_entry(const char* kernel) {
  return {{kernel, kOneKernel ? "one-kernel" : "two-kernel", name_of_type<T>(), "", nullptr,
           nullptr, kRequested},
          reduce<T, Op, kStreams, kRequested, kOneKernel>};
}

// clang-format off
#define MEMKERN_MAP_BY(u, kernel, Op, arrays, ...)       \
  map_entry<double, Op, arrays_in(arrays), u>(kernel),   \
  map_entry<float, Op, arrays_in(arrays), u>(kernel),
#define MEMKERN_REDUCE_BY(u, kernel, Op, arrays, ...)             \
  reduce_entry<double, Op, arrays_in(arrays), u, false>(kernel),  \
  reduce_entry<float, Op, arrays_in(arrays), u, false>(kernel),   \
  reduce_entry<double, Op, arrays_in(arrays), u, true>(kernel),   \
  reduce_entry<float, Op, arrays_in(arrays), u, true>(kernel),
#define MEMKERN_MAP(...) MEMKERN_MAP_BY(0, __VA_ARGS__)
#define MEMKERN_STORE MEMKERN_MAP
#define MEMKERN_REDUCE(...) MEMKERN_REDUCE_BY(0, __VA_ARGS__)
// clang-format on

}  // namespace
}  // namespace memkern::gpu
