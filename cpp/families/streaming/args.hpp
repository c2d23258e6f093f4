// Arguments of loops over arrays, for all techniques and the code that prepares them.
#pragma once

#include <cstdint>

#include "core/body.hpp"

namespace memkern {

struct StreamingArgs {
  static constexpr int kMaxStreams = 4;
  static constexpr int kIndices = 3;
  // 256 bytes, so that no two workers write to the same line or to lines prefetched as a pair.
  static constexpr std::int64_t kPartialStride = 32;
  // On a device: one partial result per block of a reduction, then a count of finished blocks. No
  // device runs more blocks at a time.
  static constexpr int kMaxReducingBlocks = 8192;
  static constexpr int kDevicePartials = kMaxReducingBlocks + 1;
  // Largest number of entries of a block of BS6 by default, unless a single row has more; half as
  // many rows.
  static constexpr int kBlockEntries = 512;

  void* stream[kMaxStreams] = {};  // in the order in which the spec declares them
  int streams = 0;
  const void* index[kIndices] = {};
  std::int64_t rows = 0;      // of two-dimensional arrays, or length of the index arrays
  std::int64_t columns = 0;   // of two-dimensional arrays
  std::int64_t distance = 0;  // of the software prefetch, in elements
  double alpha = 1.0;
  double beta = 1.0;
  std::int64_t blocks = 0;  // of a reduction on a device; 0: as many as run at a time
  // Of BS6 on a device: the first rows of blocks with about as many entries each, then the number
  // of rows.
  const std::int64_t* row_blocks = nullptr;
  std::int64_t row_block_count = 0;
  std::int64_t block_entries = kBlockEntries;
  double* partial = nullptr;  // worker w's at w * kPartialStride
  double* result = nullptr;   // of a reduction, combined by `finish`
};

}  // namespace memkern
