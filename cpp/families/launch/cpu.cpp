// An empty kernel, for the cost of a parallel region, and work without memory accesses, against
// which the cost of a barrier is measured.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/launch/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

void empty(const void* args, Range, int) { do_not_optimize(args); }

// A thousand dependent multiplications per worker.
void compute(const void* args, Range range, int) {
  std::uint64_t x = 1;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    for (int k = 0; k < 1000; ++k) {
      x *= 3;
      asm volatile("" : "+r"(x));
    }
  }
  do_not_optimize(args);
}

constexpr Entry kEntries[] = {
    {"launch.empty", MEMKERN_VARIANT, "float64", "", empty, nullptr},
    {"launch.compute", MEMKERN_VARIANT, "float64", "", compute, nullptr},
};

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
