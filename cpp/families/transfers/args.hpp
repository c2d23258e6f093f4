// What the bodies of the transfers work on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memkern {

// Data that move from one memory to another. Of managed memory, which moves by itself, the target
// gets the first word of each page instead, as it is read at the other end.
struct Transfer {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};

struct TransfersArgs {
  // No page of a host or of a device is smaller.
  static constexpr std::int64_t kPage_B = 4096;
  std::int64_t bytes = 0;  // in each direction
  Transfer to_device;      // or from one device to the other
  Transfer from_device;    // as far as there is one
  int peer = -1;           // number of the other device
};

}  // namespace memkern
