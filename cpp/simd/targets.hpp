// Properties of the current Highway target.
#pragma once

#include "engine/registry.hpp"

// Highway emulates vectors on targets that have none. Its oldest releases that are supported have
// none for the baseline of x86-64.
#define MEMKERN_TARGET_HAS_VECTORS (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
// Whether bodies are compiled for it: with emulated vectors, the simd technique would be the scalar
// technique under another name.
#define MEMKERN_TARGET_EXISTS (!MEMKERN_SIMD || MEMKERN_TARGET_HAS_VECTORS)

// The oldest releases of Highway that are supported have no such macro.
#define MEMKERN_TARGET_IS_SVE \
  ((HWY_TARGET & (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)) != 0)
