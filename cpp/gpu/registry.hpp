// The table of the GPU kernels in this module.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/device.hpp"

namespace memkern::gpu {

// All kernels of all files.
inline std::vector<DeviceEntry>& entries() {
  static std::vector<DeviceEntry> all;
  return all;
}

// Registers the kernels of one file, with their default number of threads per block.
class TableRegistrar {
 public:
  TableRegistrar(const DeviceEntry* table, std::size_t size, int threads) {
    for (std::size_t k = 0; k < size; ++k) {
      entries().push_back(table[k]);
      entries().back().threads = threads;
    }
  }
};

}  // namespace memkern::gpu
