// Whether bodies are compiled for the current Highway target.
#pragma once

#include "engine/registry.hpp"

// Highway emulates vectors on targets that have none. The simd technique is not built for these: it
// would be the scalar technique under another name.
#define MEMKERN_TARGET_EXISTS \
  (!MEMKERN_SIMD || (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128))
