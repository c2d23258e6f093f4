// The CUDA devices of this machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/device.hpp"

namespace memkern::cuda {

// Number of devices; throws DeviceError with the reason if there is none.
int device_count();
// Created by the first call; later calls return the same object. The device is occupied at its
// first use.
Device& device(int number);

struct Description {
  std::string name;
  std::string isa;
  std::string bus;  // PCI bus id, as nvidia-smi shows it
  std::int64_t memory_B;
  std::int64_t l2_B;
  double peak_Bps;  // of the memory: clock x bus width, two transfers a cycle
  bool ecc;
  int units;
  int max_threads;  // of a block
  int driver;       // 1000 times the major version, plus 10 times the minor one
  int runtime;      // in the same form
};
// Without occupying the device.
Description describe(int number);

// Whether data can go directly from one device to another.
bool reaches(int number, int peer);

// Median time, in seconds, of `times` copies of `bytes` bytes from one buffer of the device to
// another by the driver, after copies for `warm_s` seconds.
double copy_s(int number, std::int64_t bytes, int times, double warm_s);

}  // namespace memkern::cuda
