// The table of the GPU kernels in this module.
#pragma once

#include <cstdint>
#include <type_traits>
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
  TableRegistrar(const std::vector<DeviceEntry>& table, int threads) {
    for (const DeviceEntry& entry : table) {
      entries().push_back(entry);
      entries().back().threads = threads;
    }
  }
};

// The name of a type of values or indices in an entry.
template <class T>
constexpr const char* name_of_type() {
  constexpr bool k64 = sizeof(T) == 8;
  if constexpr (std::is_floating_point_v<T>) return k64 ? "float64" : "float32";
  if constexpr (std::is_unsigned_v<T>) return k64 ? "uint64" : "uint32";
  return k64 ? "int64" : "int32";
}

// Calls add(value, index) with a value and an index of each pair of types of indexed kernels.
template <class Add>
void for_indexed_types(const Add& add) {
  add(double{}, std::int64_t{});
  add(double{}, std::int32_t{});
  add(float{}, std::int64_t{});
  add(float{}, std::int32_t{});
}

}  // namespace memkern::gpu
