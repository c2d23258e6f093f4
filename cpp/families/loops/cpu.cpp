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

// Inner points of rows [begin + 1, end + 1).
template <class T, bool kNonTemporal, int kUnroll = kMapUnroll>
void stencil(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  for (std::int64_t row = range.begin + 1; row <= range.end; ++row) {
    const std::int64_t end = (row + 1) * args.columns - 1;
    for (std::int64_t i = row * args.columns + 1; i < end;) {
      const std::int64_t stop = burst<T>(*static_cast<const StreamingArgs*>(p), i, end);
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
#define MEMKERN_MAP_BY(u, name, Op, arrays, flops, scalars)                      \
  {name, MEMKERN_VARIANT, "float64", "", map<double, Op, false, u>, nullptr, u}, \
  {name, MEMKERN_VARIANT, "float32", "", map<float, Op, false, u>, nullptr, u},
#define MEMKERN_REDUCE_BY(u, name, Op, arrays, flops, scalars)                  \
  {name, MEMKERN_VARIANT, "float64", "", reduce<double, Op, u>, finish<Op>, u}, \
  {name, MEMKERN_VARIANT, "float32", "", reduce<float, Op, u>, finish<Op>, u},
#define MEMKERN_BODY_BY(u, name, body)                                        \
  {name, MEMKERN_VARIANT, "float64", "", body<double, false, u>, nullptr, u}, \
  {name, MEMKERN_VARIANT, "float32", "", body<float, false, u>, nullptr, u},
#define MEMKERN_UNROLLED(by, ...)                                             \
  by(1, __VA_ARGS__) by(2, __VA_ARGS__) by(3, __VA_ARGS__) by(4, __VA_ARGS__) \
  by(6, __VA_ARGS__) by(8, __VA_ARGS__) by(12, __VA_ARGS__) by(16, __VA_ARGS__)
#else
#define MEMKERN_UNROLLED(by, ...)
#endif

#define MEMKERN_LOOP_STORE(...) MEMKERN_STORE(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_MAP(...) MEMKERN_MAP(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_REDUCE(...) MEMKERN_REDUCE(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_REDUCE_BY, __VA_ARGS__)
#define MEMKERN_LOOP_BODY(name, body, second, arrays, flops, scalars) \
  MEMKERN_BODY(name, MEMKERN_VARIANT, body)                           \
  MEMKERN_SECOND_BODY(name, second, body)                             \
  MEMKERN_UNROLLED(MEMKERN_BODY_BY, name, body)

constexpr Entry kEntries[] = {
#include "families/loops/entries.inc"
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
