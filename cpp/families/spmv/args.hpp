// Arguments of sparse matrix-vector products, for all techniques and the code that prepares them.
#pragma once

#include <cstdint>

namespace memkern {

struct SpmvArgs {
  // Arrays of the matrix may be read this many elements past their end.
  static constexpr std::int64_t kTail = 64;

  const void* values = nullptr;
  const void* columns = nullptr;  // row indices in CSC
  const void* starts = nullptr;   // of rows, chunks (SELL) or columns (CSC), and end of the last
  const void* x = nullptr;
  void* y = nullptr;
  std::int64_t chunk = 1;     // C: rows per chunk
  std::int64_t step = 1;      // elements from an entry of a row to the next one
  std::int64_t width = 0;     // entries per row in ELLPACK
  std::int64_t rows = 0;      // of y
  std::int64_t entries = 0;   // stored, including padding
  std::int64_t distance = 0;  // of the software prefetch of x, in entries
  void* partial = nullptr;    // worker w's y at w * partial_stride
  std::int64_t partial_stride = 0;
};

}  // namespace memkern
