#include "families/spmv/sell.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "core/parts.hpp"

namespace memkern {
namespace {

std::int64_t row_length(const std::vector<std::int64_t>& row_starts, std::int64_t row) {
  const auto at = static_cast<std::size_t>(row);
  return row_starts[at + 1] - row_starts[at];
}

}  // namespace

SellLayout sell_layout(const Team& team, const std::vector<std::int64_t>& row_starts,
                       std::int64_t chunk, std::int64_t sigma, std::int64_t split) {
  SellLayout layout;
  const std::int64_t rows = layout.rows = std::ssize(row_starts) - 1;
  layout.chunk = chunk;
  layout.order.resize(static_cast<std::size_t>(rows));
  std::iota(layout.order.begin(), layout.order.end(), std::int64_t{0});
  sigma = std::min(sigma, rows);
  const auto sort = [&](Range part) {
    const std::int64_t size = part.end - part.begin;
    if (sigma <= 1 || size == 0) return;
    parallel_parts(team, 1, (size - 1) / sigma + 1, [&](Range blocks, int) {
      for (std::int64_t b = blocks.begin; b < blocks.end; ++b) {
        const auto first = layout.order.begin() + part.begin;
        const auto begin = first + b * sigma;
        const auto end = first + std::min(size, (b + 1) * sigma);
        std::stable_sort(begin, end, [&](std::int64_t r, std::int64_t s) {
          return row_length(row_starts, r) > row_length(row_starts, s);
        });
      }
    });
  };
  sort({0, split});
  sort({split, rows});
  const std::int64_t chunks = rows / chunk + (rows % chunk > 0 ? 1 : 0);
  layout.starts.assign(static_cast<std::size_t>(chunks + 1), 0);
  parallel_parts(team, 1, chunks, [&](Range part, int) {
    for (std::int64_t c = part.begin; c < part.end; ++c) {
      std::int64_t width = 0;
      for (std::int64_t i = c * chunk; i < std::min(rows, (c + 1) * chunk); ++i) {
        width = std::max(width, row_length(row_starts, layout.order[static_cast<std::size_t>(i)]));
      }
      layout.starts[static_cast<std::size_t>(c + 1)] = width;
    }
  });
  for (std::size_t c = 1; c < layout.starts.size(); ++c) {
    const std::int64_t size = checked_mul(layout.starts[c], chunk, "the padded matrix");
    layout.starts[c] = checked_add(layout.starts[c - 1], size, "the padded matrix");
  }
  return layout;
}

template <class T, class I, class J>
void sell_fill(const Team& team, const SellLayout& layout,
               const std::vector<std::int64_t>& row_starts, const I* columns_in, const T* values_in,
               std::int64_t columns, const std::int64_t* moved, T* values_out, J* columns_out) {
  std::atomic<std::int64_t> bad{row_starts.back()};
  const std::int64_t chunk = layout.chunk;
  parallel_parts(team, 1, std::ssize(layout.starts) - 1, [&](Range part, int) {
    for (std::int64_t c = part.begin; c < part.end; ++c) {
      const std::int64_t first = layout.starts[static_cast<std::size_t>(c)];
      const std::int64_t width = (layout.starts[static_cast<std::size_t>(c + 1)] - first) / chunk;
      for (std::int64_t lane = 0; lane < chunk; ++lane) {
        const std::int64_t i = c * chunk + lane;
        const std::int64_t row = i < layout.rows ? layout.order[static_cast<std::size_t>(i)] : -1;
        const std::int64_t begin = row < 0 ? 0 : row_starts[static_cast<std::size_t>(row)];
        const std::int64_t length = row < 0 ? 0 : row_length(row_starts, row);
        for (std::int64_t j = 0; j < width; ++j) {
          const std::int64_t to = first + j * chunk + lane;
          std::int64_t column = columns;
          T value = 0;
          if (j < length) {
            const auto given = static_cast<std::int64_t>(columns_in[begin + j]);
            if (given < 0 || given >= columns) {
              std::int64_t first_bad = bad.load();
              while (begin + j < first_bad && !bad.compare_exchange_weak(first_bad, begin + j)) {
              }
              continue;
            }
            column = moved != nullptr ? moved[given] : given;
            value = values_in[begin + j];
          }
          values_out[to] = value;
          columns_out[to] = static_cast<J>(column);
        }
      }
    }
  });
  const std::int64_t at = bad.load();
  if (at < row_starts.back()) {
    throw InputError("columns[" + std::to_string(at) + "] is " + std::to_string(columns_in[at]) +
                     ", outside 0 to " + std::to_string(columns - 1));
  }
}

#define MEMKERN_FILL(T, I, J)                                                               \
  template void sell_fill(const Team&, const SellLayout&, const std::vector<std::int64_t>&, \
                          const I*, const T*, std::int64_t, const std::int64_t*, T*, J*);
#define MEMKERN_FILLS(T)                      \
  MEMKERN_FILL(T, std::int32_t, std::int32_t) \
  MEMKERN_FILL(T, std::int32_t, std::int64_t) \
  MEMKERN_FILL(T, std::int64_t, std::int32_t) MEMKERN_FILL(T, std::int64_t, std::int64_t)
MEMKERN_FILLS(float)
MEMKERN_FILLS(double)

}  // namespace memkern
