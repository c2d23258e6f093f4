// The latency of memory, as the calling thread sees it now.
#pragma once

namespace memkern {

// Seconds of a load from memory: of dependent loads of a few lines that were flushed from all
// caches before, the shortest of two tries. NaN where lines can't be flushed. Takes about 10
// microseconds and needs a page.
double measure_memory();

}  // namespace memkern
