// What the Python module of a library of one-sided operations needs of it. It has no type of the
// library, so that the module's code is compiled once for all libraries.
#pragma once

#include <string>
#include <vector>

#include "backends/ranks/settings.hpp"
#include "engine/device.hpp"

namespace memkern::ranks {

// See library.hpp.
struct Interface {
  void (*finish)();
  std::string (*version)();
  int (*rank)();
  int (*ranks)();
  const std::vector<int>& (*nodes)();
  bool (*threads)();
  bool (*private_contexts)();
  Device& (*device)(const Settings& settings);
};

}  // namespace memkern::ranks
