// How a device's operations are completed, and which rank carries out which iterations.
#pragma once

#include <cstdint>

namespace memkern::ranks {

struct Settings {
  std::int64_t flush_every = 1;  // updates in a batch
  bool private_contexts = false;
  int shift = 0;  // each rank carries out the iterations of the rank that is so many ranks ahead
};

}  // namespace memkern::ranks
