// Loops over arrays: arguments shared by all techniques and by the code that prepares them.
#pragma once

#include <cstdint>

#include "core/body.hpp"

namespace memkern {

struct StreamingArgs {
  static constexpr int kMost = 4;
  static constexpr int kIndices = 3;
  // Partial results of neighbouring workers lie in lines that no prefetcher pairs.
  static constexpr std::int64_t kPartialStride = 32;
  // On a device: one for each block of a reduction, and behind them a count of those done.
  static constexpr int kReducingBlocks = 512;
  static constexpr int kDevicePartials = kReducingBlocks + 1;

  void* stream[kMost] = {};  // in the order in which the spec declares them
  int streams = 0;
  const void* index[kIndices] = {};
  std::int64_t rows = 0;      // of two-dimensional arrays, or of what is indexed
  std::int64_t columns = 0;   // of two-dimensional arrays
  std::int64_t distance = 0;  // of the software prefetch, in elements
  double alpha = 1.0;
  double beta = 1.0;
  double* partial = nullptr;  // worker w's at w * kPartialStride
  double* result = nullptr;   // of a reduction, combined by `finish`
};

}  // namespace memkern
