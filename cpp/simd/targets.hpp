// What bodies for the processor's instruction sets need to know of the target they are compiled
// for.
#pragma once

#include "engine/registry.hpp"

// Highway has one-lane stand-ins for targets without vectors. The simd technique leaves those
// out: explicit vectors of one lane would be the scalar technique by another name.
#define MEMKERN_TARGET_EXISTS \
  (!MEMKERN_SIMD || (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128))
