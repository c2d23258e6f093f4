// Arguments of the transfers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memkern {

// Data that move from one memory to another. Managed memory migrates by itself; the target then
// gets the first word of each page, as read at the other end.
struct Transfer {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};

struct TransfersArgs {
  // Smallest page of a host or of a device.
  static constexpr std::int64_t kPage_B = 4096;
  std::int64_t bytes = 0;  // in each direction
  Transfer to_device;      // or from one device to the other
  Transfer from_device;    // if there is one
  int peer = -1;           // number of the other device
};

}  // namespace memkern
