// Loops over arrays of one length: arguments shared by all techniques and by the code that
// prepares them.
#pragma once

#include <cstdint>

#include "core/kernel.hpp"

namespace memkern {

struct StreamingArgs {
  static constexpr int kMost = 4;
  // Partial results of neighbouring workers lie in lines that no prefetcher pairs.
  static constexpr std::int64_t kPartialStride = 32;

  void* stream[kMost] = {};  // in the order in which the spec declares them
  double alpha = 1.0;
  double beta = 1.0;
  double* partial = nullptr;  // worker w's at w * kPartialStride
  double* result = nullptr;   // of a reduction, combined by `finish`
};

}  // namespace memkern
