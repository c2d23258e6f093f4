// STREAM (McCalpin) and the finite-element streaming tests BS1 to BS5 (Chalmers and Warburton
// 2020): operations on the elements of up to four arrays of one length.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/streaming.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/kernel.hpp"
#include "kernels/streaming-inl.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

// clang-format off
constexpr Entry kEntries[] = {
#include "kernels/streaming-entries.inc"
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "core/targets.inc"
