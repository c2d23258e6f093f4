// The loop kernels of the ECM studies (Alappat et al. 2021), each also built with several numbers
// of vectors or accumulators per step (option `unroll`).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/loops/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/streaming/cpu-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

#define MEMKERN_OPERATIONS
#include "families/loops/entries.inc"
#undef MEMKERN_OPERATIONS

#if MEMKERN_SIMD
// The whole vectors of elements [i, end) of the stencil, in six stages: a step has each stage of
// another vector, so that its instructions only read registers of earlier steps and none waits for
// another. Returns the first element that is left, which is `i` if there are too few vectors.
template <class T>
MEMKERN_INLINE std::int64_t pipelined_steps(const Packed<T, false>& a, std::int64_t i,
                                            std::int64_t end, double alpha) {
  using A = Packed<T, false>;
  const std::int64_t lanes = A::lanes();
  const std::int64_t row = a.args.columns;
  if (i + 5 * lanes > end) return i;
  const auto va = A::set(alpha);
  typename A::Value west, east, north, south, sides, ends, middle, both, total, scaled;
#define MEMKERN_STAGES(first, last, at)                                    \
  if constexpr ((last) >= 5) a.store(0, (at)-5 * lanes, scaled);           \
  if constexpr ((first) <= 4 && 4 <= (last)) scaled = A::mul(va, total);   \
  if constexpr ((first) <= 3 && 3 <= (last)) total = A::add(middle, both); \
  if constexpr ((first) <= 2 && 2 <= (last)) {                             \
    both = A::add(sides, ends);                                            \
    middle = a.load(1, (at)-2 * lanes);                                    \
  }                                                                        \
  if constexpr ((first) <= 1 && 1 <= (last)) {                             \
    sides = A::add(west, east);                                            \
    ends = A::add(north, south);                                           \
  }                                                                        \
  if constexpr ((first) <= 0) {                                            \
    west = a.load(1, (at)-1);                                              \
    east = a.load(1, (at) + 1);                                            \
    north = a.load(1, (at)-row);                                           \
    south = a.load(1, (at) + row);                                         \
  }
  MEMKERN_STAGES(0, 0, i)
  MEMKERN_STAGES(0, 1, i + lanes)
  MEMKERN_STAGES(0, 2, i + 2 * lanes)
  MEMKERN_STAGES(0, 3, i + 3 * lanes)
  MEMKERN_STAGES(0, 4, i + 4 * lanes)
  for (i += 5 * lanes; i + lanes <= end; i += lanes) {
    MEMKERN_STAGES(0, 5, i)
  }
  MEMKERN_STAGES(1, 5, i)
  MEMKERN_STAGES(2, 5, i + lanes)
  MEMKERN_STAGES(3, 5, i + 2 * lanes)
  MEMKERN_STAGES(4, 5, i + 3 * lanes)
  MEMKERN_STAGES(5, 5, i + 4 * lanes)
#undef MEMKERN_STAGES
  return i;
}
#endif

// Inner points of rows [begin + 1, end + 1).
template <class T, bool kNonTemporal, int kUnroll = kMapUnroll, bool kPipelined = false>
void stencil(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  for (std::int64_t row = range.begin + 1; row <= range.end; ++row) {
    const std::int64_t end = (row + 1) * args.columns - 1;
    for (std::int64_t i = row * args.columns + 1; i < end;) {
      const std::int64_t stop = burst<T>(*static_cast<const StreamingArgs*>(p), i, end);
#if MEMKERN_SIMD
      if constexpr (kPipelined) {
        i = pipelined_steps<T>(Packed<T, false>{args}, i, stop, args.alpha);
      }
#endif
      map_range<T, Stencil, kNonTemporal, kUnroll>(args, i, stop);
      i = stop;
    }
  }
  if constexpr (kNonTemporal) store_fence();
  do_not_optimize(args.stream[0]);
}

// x0 += A x2, column by column: each column of A is a contiguous stream, so that each is a daxpy.
// Software prefetch loads A only; with the hint, as lines that are not to stay in the caches.
template <class T, bool kHint, int kUnroll = kMapUnroll>
void matvec(const void* p, Range range, int) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  T* matrix = static_cast<T*>(args.stream[1]);
  const T* x = static_cast<const T*>(args.stream[2]);
  const bool ahead = kHint || args.distance > 0;
  const std::int64_t distance = args.distance > 0 ? args.distance : 2 * kBurst_B / kSize;
  for (std::int64_t c = 0; c < args.columns; ++c) {
    T* column = matrix + c * args.rows;
    args.stream[1] = column;
    args.alpha = static_cast<double>(x[c]);
    for (std::int64_t i = range.begin; i < range.end;) {
      std::int64_t stop = range.end;
      if (ahead) {
        if (stop - i > kBurst_B / kSize) stop = i + kBurst_B / kSize;
        for (std::int64_t at = 0; at < kBurst_B / kSize; at += kLine_B / kSize) {
          __builtin_prefetch(column + i + distance + at, 0, kHint ? 0 : 3);
        }
      }
      map_range<T, Daxpy, false, kUnroll>(args, i, stop);
      i = stop;
    }
  }
  do_not_optimize(args.stream[0]);
}

// clang-format off
#define MEMKERN_BODY(name, variant, body)                       \
  {name, variant, "float64", "", body<double, false>, nullptr}, \
  {name, variant, "float32", "", body<float, false>, nullptr},
#undef MEMKERN_SECOND_BODY  // may differ from target to target
#if MEMKERN_NT_VARIANT
#define MEMKERN_SECOND_BODY(name, variant, body)               \
  {name, variant, "float64", "", body<double, true>, nullptr}, \
  {name, variant, "float32", "", body<float, true>, nullptr},
#else
#define MEMKERN_SECOND_BODY(name, variant, body)
#endif

#if MEMKERN_SIMD
#define MEMKERN_MAP_BY(u, name, Op, ...)                                         \
  {name, MEMKERN_VARIANT, "float64", "", map<double, Op, false, u>, nullptr, u}, \
  {name, MEMKERN_VARIANT, "float32", "", map<float, Op, false, u>, nullptr, u},
#define MEMKERN_REDUCE_BY(u, name, Op, ...)                                     \
  {name, MEMKERN_VARIANT, "float64", "", reduce<double, Op, u>, finish<Op>, u}, \
  {name, MEMKERN_VARIANT, "float32", "", reduce<float, Op, u>, finish<Op>, u},
#define MEMKERN_BODY_BY(u, name, body)                                        \
  {name, MEMKERN_VARIANT, "float64", "", body<double, false, u>, nullptr, u}, \
  {name, MEMKERN_VARIANT, "float32", "", body<float, false, u>, nullptr, u},
#define MEMKERN_UNROLLED(by, ...)                                                 \
  by(1, __VA_ARGS__) by(2, __VA_ARGS__) by(3, __VA_ARGS__) by(4, __VA_ARGS__)     \
  by(5, __VA_ARGS__) by(6, __VA_ARGS__) by(7, __VA_ARGS__) by(8, __VA_ARGS__)     \
  by(9, __VA_ARGS__) by(10, __VA_ARGS__) by(11, __VA_ARGS__) by(12, __VA_ARGS__)  \
  by(13, __VA_ARGS__) by(14, __VA_ARGS__) by(15, __VA_ARGS__) by(16, __VA_ARGS__)
#else
#define MEMKERN_UNROLLED(by, ...)
#endif

#define MEMKERN_LOOP_STORE(...) MEMKERN_STORE(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_MAP(...) MEMKERN_MAP(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_REDUCE(...) MEMKERN_REDUCE(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_REDUCE_BY, __VA_ARGS__)
#define MEMKERN_LOOP_BODY(name, body, second, ...) \
  MEMKERN_BODY(name, MEMKERN_VARIANT, body)        \
  MEMKERN_SECOND_BODY(name, second, body)          \
  MEMKERN_UNROLLED(MEMKERN_BODY_BY, name, body)

constexpr Entry kEntries[] = {
#include "families/loops/entries.inc"
#if MEMKERN_SIMD
  {"loops.stencil", "pipelined", "float64", "", stencil<double, false, 1, true>, nullptr},
  {"loops.stencil", "pipelined", "float32", "", stencil<float, false, 1, true>, nullptr},
#endif
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
