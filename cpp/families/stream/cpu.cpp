// STREAM (McCalpin): operations on the elements of up to three arrays of equal length.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/stream/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/streaming/cpu-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

// clang-format off
constexpr Entry kEntries[] = {
#include "families/stream/entries.inc"
#include "families/streaming/integers.inc"
#include "families/stream/entries.inc"
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
