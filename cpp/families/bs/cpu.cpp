// The finite-element streaming tests BS0 to BS5 (Chalmers and Warburton 2020): an empty kernel, and
// operations on the elements of up to four arrays of equal length.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/bs/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/streaming/cpu-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

#define MEMKERN_OPERATIONS
#include "families/bs/entries.inc"
#undef MEMKERN_OPERATIONS

void empty(const void* args, Range, int) { do_not_optimize(args); }

// clang-format off
constexpr Entry kEntries[] = {
    {"bs.bs0", MEMKERN_VARIANT, "float64", "", empty, nullptr},
#include "families/bs/entries.inc"
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
