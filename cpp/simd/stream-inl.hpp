// Non-temporal stores of vectors. Included once per target.
#if defined(MEMKERN_STREAM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEMKERN_STREAM_INL
#undef MEMKERN_STREAM_INL
#else
#define MEMKERN_STREAM_INL
#endif

#include <cstdint>

#include "core/body.hpp"
#include "hwy/highway.h"
#include "simd/targets.hpp"

#if MEMKERN_SIMD && MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Stores a vector at an aligned address without reading its line.
template <class D>
MEMKERN_INLINE void stream(hn::Vec<D> value, D d, hn::TFromD<D>* to) {
#if HWY_ARCH_ARM_A64 && !MEMKERN_TARGET_IS_SVE
  // For which Highway has ordinary stores.
  if constexpr (sizeof(value) == 16) {
    const auto bits = hn::BitCast(hn::Repartition<std::uint64_t, D>(), value).raw;
    asm volatile("stnp %d0, %d1, [%2]"
                 :
                 : "w"(vget_low_u64(bits)), "w"(vget_high_u64(bits)), "r"(to)
                 : "memory");
    return;
  }
#endif
  hn::Stream(value, d, to);
}

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
