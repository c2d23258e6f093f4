// Common code of the modules of devices.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "engine/device.hpp"

namespace memkern {

using EntryRow = std::tuple<std::string, std::string, std::string, std::string, int, std::string>;

// Kernel, variant, dtype, index type, unroll and template variant of each entry.
inline std::vector<EntryRow> rows_of(const std::vector<DeviceEntry>& entries) {
  std::vector<EntryRow> all;
  for (const DeviceEntry& e : entries) {
    all.emplace_back(e.kernel, e.variant, e.dtype, e.index, e.unroll, e.template_variant);
  }
  return all;
}

// The form in which _memkern accepts a device.
inline pybind11::capsule capsule_of(Device& device) {
  return pybind11::capsule(&device, "memkern.Device");
}

}  // namespace memkern
