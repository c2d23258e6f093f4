// The loop kernels of the ECM studies (Alappat et al. 2021), each also with the number of vectors
// or accumulators per step as a knob.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/loops.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/kernel.hpp"
#include "kernels/streaming-inl.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

// Inner points of rows [begin + 1, end + 1).
template <class T, bool kNonTemporal, int kUnroll = kMapUnroll>
void stencil(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  for (std::int64_t row = range.begin + 1; row <= range.end; ++row) {
    const std::int64_t end = (row + 1) * args.columns - 1;
    for (std::int64_t i = row * args.columns + 1; i < end;) {
      const std::int64_t stop = burst<T>(args, i, end);
      map_range<T, Stencil, kNonTemporal, kUnroll>(args, i, stop);
      i = stop;
    }
  }
  if constexpr (kNonTemporal) store_fence();
  keep(args.stream[0]);
}

// x0 += A x2, column by column: a column of A is a stream of its own, so that each is a daxpy.
// With the hint, lines of A are asked for ahead of use and told not to stay.
template <class T, bool kHint, int kUnroll = kMapUnroll>
void matvec(const void* p, Range range, int) {
  const StreamingArgs all = *static_cast<const StreamingArgs*>(p);
  constexpr std::int64_t kBurst = kBurst_B / static_cast<std::int64_t>(sizeof(T));
  StreamingArgs args = all;
  args.streams = 2;
  const std::int64_t ahead = all.distance > 0 ? all.distance : 2 * kBurst;
  if constexpr (kHint) args.distance = 0;
  for (std::int64_t c = 0; c < all.columns; ++c) {
    T* column = static_cast<T*>(all.stream[1]) + c * all.rows;
    args.stream[1] = column;
    args.alpha = static_cast<double>(static_cast<const T*>(all.stream[2])[c]);
    for (std::int64_t i = range.begin; i < range.end;) {
      std::int64_t stop = burst<T>(args, i, range.end);
      if constexpr (kHint) {
        stop = i + kBurst < range.end ? i + kBurst : range.end;
        for (std::int64_t at = 0; at < kBurst;
             at += kLine_B / static_cast<std::int64_t>(sizeof(T))) {
          __builtin_prefetch(column + i + ahead + at, 0, 0);
        }
      }
      map_range<T, Daxpy, false, kUnroll>(args, i, stop);
      i = stop;
    }
  }
  keep(all.stream[0]);
}

// clang-format off
#define MEMKERN_BODY(name, variant, streams, body)                                            \
  {name, variant, "float64", "", body<double, false>, nullptr, streams},                      \
  {name, variant, "float32", "", body<float, false>, nullptr, streams},
#undef MEMKERN_PAST_CACHES  // may differ from target to target
#if MEMKERN_STREAMS_PAST_CACHES
#define MEMKERN_PAST_CACHES(name, streams, body)                                              \
  {name, "nt", "float64", "", body<double, true>, nullptr, streams},                          \
  {name, "nt", "float32", "", body<float, true>, nullptr, streams},
#else
#define MEMKERN_PAST_CACHES(name, streams, body)
#endif

#if MEMKERN_SIMD
#define MEMKERN_MAP_BY(u, name, streams, Op)                                                  \
  {name, MEMKERN_VARIANT, "float64", "", map<double, Op, false, u>, nullptr, streams, u},     \
  {name, MEMKERN_VARIANT, "float32", "", map<float, Op, false, u>, nullptr, streams, u},
#define MEMKERN_REDUCE_BY(u, name, streams, Op)                                               \
  {name, MEMKERN_VARIANT, "float64", "", reduce<double, Op, u>, finish<Op>, streams, u},      \
  {name, MEMKERN_VARIANT, "float32", "", reduce<float, Op, u>, finish<Op>, streams, u},
#define MEMKERN_BODY_BY(u, name, streams, body)                                               \
  {name, MEMKERN_VARIANT, "float64", "", body<double, false, u>, nullptr, streams, u},        \
  {name, MEMKERN_VARIANT, "float32", "", body<float, false, u>, nullptr, streams, u},
#define MEMKERN_UNROLLED(by, ...)                                                             \
  by(1, __VA_ARGS__) by(2, __VA_ARGS__) by(3, __VA_ARGS__) by(4, __VA_ARGS__)                 \
  by(6, __VA_ARGS__) by(8, __VA_ARGS__) by(12, __VA_ARGS__) by(16, __VA_ARGS__)
#else
#define MEMKERN_UNROLLED(by, ...)
#endif

#define MEMKERN_LOOP_STORE(...) MEMKERN_STORE(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_MAP(...) MEMKERN_MAP(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_REDUCE(...) MEMKERN_REDUCE(__VA_ARGS__) MEMKERN_UNROLLED(MEMKERN_REDUCE_BY, __VA_ARGS__)
#define MEMKERN_LOOP_BODY(name, streams, body)                                                \
  MEMKERN_BODY(name, MEMKERN_VARIANT, streams, body)                                          \
  MEMKERN_PAST_CACHES(name, streams, body)                                                    \
  MEMKERN_UNROLLED(MEMKERN_BODY_BY, name, streams, body)

constexpr Entry kEntries[] = {
    MEMKERN_LOOP_REDUCE("loops.load", 1, Load)
    MEMKERN_LOOP_REDUCE("loops.load4", 4, Load4)
    MEMKERN_LOOP_REDUCE("loops.sum", 1, Sum)
    MEMKERN_LOOP_REDUCE("loops.dot", 2, Dot)
    MEMKERN_LOOP_REDUCE("loops.peakflops", 0, Peak)
    MEMKERN_LOOP_STORE("loops.init", 1, Init)
    MEMKERN_LOOP_STORE("loops.init4", 4, Init4)
    MEMKERN_LOOP_STORE("loops.copy", 2, Copy)
    MEMKERN_LOOP_MAP("loops.update", 1, Update)
    MEMKERN_LOOP_MAP("loops.daxpy", 2, Daxpy)
    MEMKERN_LOOP_STORE("loops.triad", 3, Triad)
    MEMKERN_LOOP_MAP("loops.nstream", 3, Nstream)
    MEMKERN_LOOP_STORE("loops.schoenauer", 4, Schoenauer)
    MEMKERN_LOOP_BODY("loops.stencil", 2, stencil)
    MEMKERN_LOOP_BODY("loops.matvec", 3, matvec)
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "core/targets.inc"
