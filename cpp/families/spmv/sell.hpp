// From compressed rows to chunks of C rows stored column by column (SELL-C-sigma, Kreutzer et al.,
// "A unified sparse matrix data format", SIAM Journal on Scientific Computing 36, 2014).
#pragma once

#include <cstdint>
#include <vector>

#include "core/team.hpp"

namespace memkern {

// Layout of a matrix in chunks, from the lengths of its rows.
struct SellLayout {
  std::int64_t rows = 0;
  std::int64_t chunk = 1;
  std::vector<std::int64_t> order;   // row order[i] of the matrix is row i of the chunks
  std::vector<std::int64_t> starts;  // of chunks, and the end of the last
};

// Sorts rows by descending length within blocks of sigma rows; rows of equal length keep their
// order. Blocks begin at row 0 and again at row `split`, which no block contains otherwise.
SellLayout sell_layout(const Team& team, const std::vector<std::int64_t>& row_starts,
                       std::int64_t chunk, std::int64_t sigma, std::int64_t split = 0);

// Fills values_out and columns_out, of layout.starts.back() elements. Padding has the value zero
// and the column `columns`, one past the last. If `moved` is not null, column c becomes moved[c].
// Throws InputError if a column is outside [0, columns).
template <class T, class I, class J>
void sell_fill(const Team& team, const SellLayout& layout,
               const std::vector<std::int64_t>& row_starts, const I* columns_in, const T* values_in,
               std::int64_t columns, const std::int64_t* moved, T* values_out, J* columns_out);

}  // namespace memkern
