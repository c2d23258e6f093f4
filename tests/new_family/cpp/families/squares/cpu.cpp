// Squares on processors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/squares/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/streaming/cpu-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

#define MEMKERN_OPERATIONS
#include "families/squares/entries.inc"
#undef MEMKERN_OPERATIONS

// clang-format off
constexpr Entry kEntries[] = {
#include "families/squares/entries.inc"
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
