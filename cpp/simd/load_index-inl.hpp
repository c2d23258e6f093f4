// A vector of indices for a vector of values. Included once per target.
#if defined(MEMKERN_LOAD_INDEX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEMKERN_LOAD_INDEX_INL
#undef MEMKERN_LOAD_INDEX_INL
#else
#define MEMKERN_LOAD_INDEX_INL
#endif

#include "hwy/highway.h"
#include "simd/targets.hpp"

#if MEMKERN_SIMD && MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Indices with the width of the values, as hardware gathers need them. The preparation has checked
// that narrowed indices fit.
template <class T, class I>
MEMKERN_INLINE hn::Vec<hn::RebindToSigned<hn::ScalableTag<T>>> load_index(const I* index) {
  const hn::RebindToSigned<hn::ScalableTag<T>> d;
  if constexpr (sizeof(T) == sizeof(I)) {
    return hn::LoadU(d, index);
  } else if constexpr (sizeof(T) > sizeof(I)) {
    const hn::Rebind<I, decltype(d)> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, index));
  } else {
    const hn::RepartitionToWide<decltype(d)> wide;
    const auto low = hn::BitCast(d, hn::LoadU(wide, index));
    const auto high = hn::BitCast(d, hn::LoadU(wide, index + hn::Lanes(wide)));
    return hn::ConcatEven(d, high, low);
  }
}

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
