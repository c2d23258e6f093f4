// An accelerator with its own memory, as a backend implements it: it runs kernels of its own.
// C++17, for CUDA's sake; every backend is a module of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/device_memory.hpp"
#include "engine/registry.hpp"

namespace memkern {

// Starts the iterations of `range` in blocks of so many threads on a queue of the device, and does
// not wait for them.
using Launch = void (*)(const void* args, Range range, int threads, void* queue);

struct DeviceEntry : Entry {
  Launch launch = nullptr;
  int threads = 0;  // of a block, where no other number is asked for
};

// One kernel of a sequence, with what it works on.
struct DeviceStep {
  Launch launch = nullptr;
  const void* args = nullptr;
  Range range{};
  int threads = 0;
};

// What the time of an invocation is. Host: between two synchronisations, over their number.
// Events: between two marks in the device's own queue. Graph: as Host, but all of a sample are
// handed over at once, as a graph made before.
enum class Timer { Host, Events, Graph };

class Device : public DeviceMemory {
 public:
  virtual const std::string& isa() const = 0;  // such as "sm_90"
  virtual int units() const = 0;               // that run blocks side by side
  virtual int most_threads() const = 0;        // of a block
  virtual const std::vector<DeviceEntry>& entries() const = 0;

  // Seconds of so many invocations of the sequence; each step's are added to `per_step` where that
  // is not null.
  virtual double sample(const std::vector<DeviceStep>& steps, std::int64_t invocations, Timer timer,
                        double* per_step) = 0;
  // Writes through memory larger than its caches.
  virtual void flush() = 0;
};

}  // namespace memkern
