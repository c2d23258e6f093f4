// Division of a range among the workers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

#include "core/body.hpp"
#include "core/team.hpp"

namespace memkern {

// The worker's part of [0, count), which is divided into contiguous ranges of equal length.
inline Range contiguous_part(std::int64_t count, int workers, int worker) {
  const std::int64_t share = count / workers;
  const std::int64_t rest = count % workers;
  const std::int64_t begin = share * worker + std::min<std::int64_t>(worker, rest);
  return {begin, begin + share + (worker < rest ? 1 : 0)};
}

// Runs fn(part, worker) on every worker. The part is the worker's row if `size` is divided into
// `rows` > 1 equal rows, otherwise an equal part of the single row.
void parallel_parts(const Team& team, std::int64_t rows, std::int64_t size,
                    const std::function<void(Range, int)>& fn);
// The same on parts that begin at boundaries[w] and end at boundaries[w + 1].
void parallel_parts(const Team& team, std::span<const std::int64_t> boundaries,
                    const std::function<void(Range, int)>& fn);

}  // namespace memkern
