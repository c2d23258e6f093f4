// Nothing, done by every worker: what a parallel region costs on its own.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/launch.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/kernel.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

void empty(const void* args, Range, int) { keep(args); }

constexpr Entry kEntries[] = {{"launch.empty", MEMKERN_VARIANT, "float64", "", empty, nullptr}};

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "core/targets.inc"
