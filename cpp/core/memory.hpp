// Current latencies of memory and of caches for the calling thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace memkern {

// Seconds of a load from memory: of dependent loads of a few lines that were flushed from all
// caches before, the shortest of two tries. NaN where lines can't be flushed. Takes about 10
// microseconds and needs a page.
double measure_memory();

// Seconds of a load from a random line, for each of some increasing numbers of bytes: of dependent
// loads, the shortest of several tries. The measurement ends after two sizes whose loads take
// almost as long as from memory, and before a size that would exceed `most_s` or the available
// memory. The memory is freed at the end. The second value is the shortest of measure_memory().
std::pair<std::vector<double>, double> measure_loads(const std::vector<std::int64_t>& sizes_B,
                                                     double most_s);

}  // namespace memkern
