#include "core/parts.hpp"

#include <omp.h>

#include <cstddef>

namespace memkern {

void parallel_parts(const Team& team, std::span<const std::int64_t> boundaries,
                    const std::function<void(Range, int)>& fn) {
  const Team::Session session(team);
#pragma omp parallel num_threads(team.size())
  {
    const auto workers = static_cast<std::size_t>(omp_get_num_threads());
    for (auto part = static_cast<std::size_t>(omp_get_thread_num()); part + 1 < boundaries.size();
         part += workers) {
      fn({boundaries[part], boundaries[part + 1]}, static_cast<int>(part));
    }
  }
}

void parallel_parts(const Team& team, std::int64_t rows, std::int64_t size,
                    const std::function<void(Range, int)>& fn) {
  const Team::Session session(team);
#pragma omp parallel num_threads(team.size())
  {
    const int worker = omp_get_thread_num();
    const int workers = omp_get_num_threads();
    if (rows == 1) {
      fn(contiguous_part(size, workers, worker), worker);
    } else {
      for (std::int64_t row = worker; row < rows; row += workers) {
        fn({row * (size / rows), (row + 1) * (size / rows)}, static_cast<int>(row));
      }
    }
  }
}

}  // namespace memkern
