// Completion of a device's operations, and assignment of iterations to ranks.
#pragma once

#include <cstdint>

namespace memkern::ranks {

struct Settings {
  std::int64_t flush_every = 1;  // updates in a batch
  bool private_contexts = false;
  int shift = 0;  // each rank executes the iterations of the rank `shift` ranks ahead
};

}  // namespace memkern::ranks
