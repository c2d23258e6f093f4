// Included at the end of a kernel file, outside every target's region: registers the tables that
// the target passes of this translation unit have left as `kEntries`.
#include "core/kernel.hpp"
#include "hwy/highway.h"

#if HWY_ONCE
namespace memkern::MEMKERN_TECHNIQUE {
namespace {

#define MEMKERN_REGISTER(target, space)                           \
  const TableRegistrar registrar_##space(target, space::kEntries, \
                                         sizeof space::kEntries / sizeof space::kEntries[0])

#if HWY_TARGETS & HWY_AVX3
MEMKERN_REGISTER(HWY_AVX3, N_AVX3);
#endif
#if HWY_TARGETS & HWY_AVX2
MEMKERN_REGISTER(HWY_AVX2, N_AVX2);
#endif
#if HWY_TARGETS & HWY_SSE4
MEMKERN_REGISTER(HWY_SSE4, N_SSE4);
#endif
#if HWY_TARGETS & HWY_SSE2
MEMKERN_REGISTER(HWY_SSE2, N_SSE2);
#endif
#if HWY_TARGETS & HWY_SVE
MEMKERN_REGISTER(HWY_SVE, N_SVE);
#endif
#if HWY_TARGETS & HWY_SVE2
MEMKERN_REGISTER(HWY_SVE2, N_SVE2);
#endif
#if HWY_TARGETS & HWY_NEON
MEMKERN_REGISTER(HWY_NEON, N_NEON);
#endif
#if !MEMKERN_SIMD && (HWY_TARGETS & HWY_EMU128)
MEMKERN_REGISTER(HWY_EMU128, N_EMU128);
#endif
#if !MEMKERN_SIMD && (HWY_TARGETS & HWY_SCALAR)
MEMKERN_REGISTER(HWY_SCALAR, N_SCALAR);
#endif

#undef MEMKERN_REGISTER

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE
#endif
