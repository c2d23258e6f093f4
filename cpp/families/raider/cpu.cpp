// RaiderSTREAM (Beebe et al. 2022): STREAM's operations on elements that are accessed by index
// arrays. The index array of an operand is a template parameter of the accessor, so that the
// operations are the same as in regular streaming.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/raider/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/streaming/cpu-inl.hpp"
#include "simd/load_index-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

constexpr int kOperands = 3;

template <class T, class By, bool kNonTemporal>
struct IndexedSingle : Single<T, kNonTemporal> {
  MEMKERN_INLINE std::int64_t at(int k, std::int64_t i) const {
    if (By::of(k) == kDirect) return i;
    return static_cast<const typename By::I*>(this->args.index[By::of(k)])[i];
  }
  MEMKERN_INLINE T load(int k, std::int64_t i) const {
    return Single<T, kNonTemporal>::load(k, at(k, i));
  }
  MEMKERN_INLINE void store(int k, std::int64_t i, T value) const {
    Single<T, kNonTemporal>::store(k, at(k, i), value);
  }
};

#if MEMKERN_SIMD
template <class T, class By>
struct IndexedPacked : Packed<T, false> {
  using Base = Packed<T, false>;
  using typename Base::Tag;
  using typename Base::Value;
  MEMKERN_INLINE auto at(int k, std::int64_t i) const {
    return load_index<T>(static_cast<const typename By::I*>(this->args.index[By::of(k)]) + i);
  }
  MEMKERN_INLINE Value load(int k, std::int64_t i) const {
    if (By::of(k) == kDirect) return Base::load(k, i);
    return hn::GatherIndex(Tag(), static_cast<const T*>(this->args.stream[k]), at(k, i));
  }
  MEMKERN_INLINE void store(int k, std::int64_t i, Value value) const {
    if (By::of(k) == kDirect) return Base::store(k, i, value);
    hn::ScatterIndex(value, Tag(), static_cast<T*>(this->args.stream[k]), at(k, i));
  }
};
#endif

// With software prefetch, prefetches the elements that a burst of iterations will access by index
// `distance` iterations later, and returns the end of the burst; otherwise returns `end`.
template <class T, class By>
MEMKERN_INLINE std::int64_t indexed_burst(const StreamingArgs& args, std::int64_t i,
                                          std::int64_t end) {
  if (args.distance == 0) return end;
  constexpr std::int64_t kElements = kBurst_B / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t stop = i + kElements < end ? i + kElements : end;
  for (std::int64_t j = i + args.distance; j < stop + args.distance && j < args.rows; ++j) {
    for (int k = 0; k < kOperands && k < args.streams; ++k) {
      if (By::of(k) == kDirect) continue;
      const auto at = static_cast<const typename By::I*>(args.index[By::of(k)])[j];
      __builtin_prefetch(static_cast<const T*>(args.stream[k]) + at);
    }
  }
  return stop;
}

template <class T, class Op, class By, bool kNonTemporal>
void indexed(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const IndexedSingle<T, By, kNonTemporal> single{{args}};
#if MEMKERN_SIMD
  const IndexedPacked<T, By> packed{{args}};
#else
  const auto& packed = single;
#endif
  for (std::int64_t i = range.begin; i < range.end;) {
    const std::int64_t stop =
        indexed_burst<T, By>(*static_cast<const StreamingArgs*>(p), i, range.end);
    map_elements<Op, kMapUnroll>(single, packed, i, stop, args.alpha, args.beta);
    i = stop;
  }
  if constexpr (kNonTemporal) store_fence();
  do_not_optimize(args.stream[0]);
}

#if !MEMKERN_SIMD && !MEMKERN_AUTO
// Every access is to element 0 and must not be optimised away, so there is no vector variant.
template <class T, class Op>
void central(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const Single<T, false> single{args};
  const T alpha = single.set(args.alpha);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    Op::step(single, 0, alpha, alpha);
    do_not_optimize(args.stream[0]);
  }
}
#define MEMKERN_CENTRAL_OF(T, name, Op) \
  {name, MEMKERN_VARIANT, kDType<T>, "", central<T, Op>, nullptr},
#define MEMKERN_CENTRAL(name, Op, arrays, flops, scalars) \
  MEMKERN_CENTRAL_OF(MEMKERN_WIDE, name, Op) MEMKERN_CENTRAL_OF(MEMKERN_NARROW, name, Op)
#else
#define MEMKERN_CENTRAL(name, Op, arrays, flops, scalars)
#endif

// clang-format off
#undef MEMKERN_ONE  // may differ from target to target
#define MEMKERN_PLAIN(name, Op, arrays, T, I, index, ...)                                          \
  {name, MEMKERN_VARIANT, kDType<T>, index, indexed<T, Op, By<I, __VA_ARGS__>, false>, nullptr, 0, \
   By<I, __VA_ARGS__>::kIndices},
#if HWY_ARCH_X86_64 && MEMKERN_NONTEMPORAL && HWY_TARGET == HWY_STATIC_TARGET
#define MEMKERN_ONE(name, Op, arrays, T, I, index, ...)                              \
  MEMKERN_PLAIN(name, Op, arrays, T, I, index, __VA_ARGS__)                          \
  {name, "nt", kDType<T>, index, indexed<T, Op, By<I, __VA_ARGS__>, true>, nullptr, 0, \
   By<I, __VA_ARGS__>::kIndices},
#else
#define MEMKERN_ONE MEMKERN_PLAIN
#endif

constexpr Entry kEntries[] = {
#include "families/raider/entries.inc"
#include "families/streaming/integers.inc"
#include "families/raider/entries.inc"
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
