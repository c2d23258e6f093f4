// The table of the entries in a library's module.
#pragma once

#include <vector>

#include "engine/device.hpp"

namespace memkern::ranks {

// The entries of all families.
inline std::vector<DeviceEntry>& entries() {
  static std::vector<DeviceEntry> all;
  return all;
}

// Registers the entries that a function adds.
class TableRegistrar {
 public:
  explicit TableRegistrar(void (*add)(std::vector<DeviceEntry>& all)) { add(entries()); }
};

}  // namespace memkern::ranks
