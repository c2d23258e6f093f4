// Repeated single instructions on values in registers and in L1: independent ones, whose time is
// the reciprocal throughput, and dependent ones, whose time is the latency.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/instructions/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/instructions/args.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS && !MEMKERN_AUTO
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kLanes = InstructionArgs::kLanes;

// Vectors cannot be elements of arrays on all targets, so chains are written out. Their number is
// half to three quarters of the registers: more than the latency of an instruction times the
// instructions issued per cycle.
// NOLINTBEGIN(cppcoreguidelines-macro-usage)
#undef MEMKERN_EACH
#undef MEMKERN_EACH_12
#define MEMKERN_EACH_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#if HWY_ARCH_ARM_A64 || (MEMKERN_SIMD && HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3)
constexpr int kChains = 24;
#define MEMKERN_EACH(X) \
  MEMKERN_EACH_12(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#else
constexpr int kChains = 12;
#define MEMKERN_EACH(X) MEMKERN_EACH_12(X)
#endif
constexpr int kUnroll = 12;

// Targets with an instruction that gathers.
#undef MEMKERN_GATHERS
#define MEMKERN_GATHERS ((HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2) || MEMKERN_TARGET_IS_SVE)

// The longest vectors of the target.
namespace whole {
#define MEMKERN_TAG hn::ScalableTag<double>
#include "families/instructions/loops.inc"
#undef MEMKERN_TAG
}  // namespace whole

// Vectors of 128 bits, for which x86-64 has no separate target.
#undef MEMKERN_NARROW
#define MEMKERN_NARROW (MEMKERN_SIMD && HWY_ARCH_X86_64 && HWY_TARGET == HWY_AVX2)
#if MEMKERN_NARROW
namespace narrow {
#define MEMKERN_TAG hn::CappedTag<double, 2>
#include "families/instructions/loops.inc"
#undef MEMKERN_TAG
}  // namespace narrow
#endif

// clang-format off
#undef MEMKERN_ENTRY
#define MEMKERN_ENTRY(name, body) \
  {"instructions.repeat", MEMKERN_VARIANT, "float64", "", body, nullptr, 0, 0, name},
#undef MEMKERN_BOTH
#define MEMKERN_BOTH(name, length, space, op) \
  MEMKERN_ENTRY(name "/throughput" length, space::independent<space::op>) \
  MEMKERN_ENTRY(name "/latency" length, space::dependent<space::op>)
#undef MEMKERN_FMA
#if HWY_NATIVE_FMA
#define MEMKERN_FMA(length, space) MEMKERN_BOTH("fma", length, space, MultiplyAdd)
#else
#define MEMKERN_FMA(length, space)
#endif
#undef MEMKERN_VALUES
#define MEMKERN_VALUES(length, space) \
  MEMKERN_ENTRY("load/throughput" length, space::independent<space::Load>) \
  MEMKERN_ENTRY("store/throughput" length, space::independent<space::Store>) \
  MEMKERN_ENTRY("store/latency" length, space::dependent<space::StoreLoad>) \
  MEMKERN_BOTH("add", length, space, Add) \
  MEMKERN_BOTH("mul", length, space, Multiply) \
  MEMKERN_BOTH("divide", length, space, Divide) \
  MEMKERN_FMA(length, space)
#undef MEMKERN_GATHER
#if MEMKERN_GATHERS
#define MEMKERN_GATHER(length, space) \
  MEMKERN_ENTRY("gather/throughput" length, space::gather_independent<false>) \
  MEMKERN_ENTRY("gather/latency" length, space::gather_dependent) \
  MEMKERN_ENTRY("gather with index load/throughput" length, space::gather_independent<true>)
#else
#define MEMKERN_GATHER(length, space)
#endif
#undef MEMKERN_ONLY_SVE
#if MEMKERN_TARGET_IS_SVE
#define MEMKERN_ONLY_SVE(length, space) \
  MEMKERN_BOTH("fcadd", length, space, ComplexAdd) \
  MEMKERN_BOTH("fcmla", length, space, ComplexMultiplyAdd) \
  MEMKERN_ENTRY("whilelo/throughput" length, space::independent<space::While>)
#else
#define MEMKERN_ONLY_SVE(length, space)
#endif
#undef MEMKERN_VECTORS
#define MEMKERN_VECTORS(length, space) \
  MEMKERN_VALUES(length, space) \
  MEMKERN_BOTH("horizontal add", length, space, HorizontalAdd) \
  MEMKERN_BOTH("permute", length, space, Permute) \
  MEMKERN_ENTRY("ordered add/throughput" length, space::ordered_independent) \
  MEMKERN_ENTRY("ordered add/latency" length, space::ordered_dependent) \
  MEMKERN_GATHER(length, space) \
  MEMKERN_ONLY_SVE(length, space)

constexpr Entry kEntries[] = {
#if MEMKERN_SIMD
    MEMKERN_VECTORS("", whole)
#if MEMKERN_NARROW
    MEMKERN_VECTORS("/128", narrow)
#endif
#else
    MEMKERN_VALUES("", whole)
    MEMKERN_ENTRY("load/latency", whole::chase)
    MEMKERN_ENTRY("atomic add/throughput", whole::atomic_add<InstructionArgs::kApart>)
    MEMKERN_ENTRY("atomic add/latency", whole::atomic_add<0>)
#endif
};
// clang-format on
// NOLINTEND(cppcoreguidelines-macro-usage)

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if !MEMKERN_AUTO
#include "simd/targets.inc"
#endif
