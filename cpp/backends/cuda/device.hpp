// The GPUs of this machine as devices, and the table of kernels that are built for them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/device.hpp"

namespace memkern::cuda {

// How many there are; throws DeviceError with the reason where there is none.
int device_count();
// Made when it is first asked for, and never again.
Device& device(int number);

struct Description {
  std::string name;
  std::string isa;
  std::string bus;  // its place on the PCI bus, by which the driver's other tools know it
  std::int64_t memory_B;
  std::int64_t l2_B;
  int units;
  int driver;   // 1000 times the major version, plus 10 times the minor one
  int runtime;  // likewise
};
Description describe(int number);

// Shortest seconds of `times` copies of so many bytes by the driver, from one buffer to another:
// what the device's memory can move.
double copy_s(int number, std::int64_t bytes, int times);

}  // namespace memkern::cuda
