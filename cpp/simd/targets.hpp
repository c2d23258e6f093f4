// Properties of the current Highway target.
#pragma once

#include "engine/registry.hpp"

// Whether bodies are compiled for it. Highway emulates vectors on targets that have none. The simd
// technique is not built for these: it would be the scalar technique under another name.
#define MEMKERN_TARGET_EXISTS \
  (!MEMKERN_SIMD || (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128))

// The oldest releases of Highway that are supported have no such macro.
#define MEMKERN_TARGET_IS_SVE \
  ((HWY_TARGET & (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)) != 0)
