// Interface of an accelerator with its own memory and kernels, implemented by a backend. C++17, as
// CUDA sources include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/device_memory.hpp"
#include "engine/registry.hpp"

namespace memkern {

// Starts the iterations of `range` in blocks of `threads` threads on a queue of the device, without
// waiting for them.
using Launch = void (*)(const void* args, Range range, int threads, void* queue);

struct DeviceEntry : Entry {
  Launch launch = nullptr;
  int threads = 0;  // default threads per block
};

// One kernel of a sequence, its arguments and its range.
struct DeviceStep {
  Launch launch = nullptr;
  const void* args = nullptr;
  Range range{};
  int threads = 0;
};

// How a sample is timed. Host: wall-clock time between two synchronisations. Events: time between
// two events in the device's queue. Graph: as Host, but the invocations are launched as graphs that
// were built before.
enum class Timer { Host, Events, Graph };

class Device : public DeviceMemory {
 public:
  virtual const std::string& isa() const = 0;  // such as "sm_90"
  virtual int units() const = 0;               // multiprocessors, or ranks
  // Processes that have the device together and call its functions in the same order.
  virtual int ranks() const { return 1; }
  virtual int max_threads() const = 0;  // per block
  virtual const std::vector<DeviceEntry>& entries() const = 0;

  // Seconds of `invocations` invocations of the sequence. Adds each step's seconds to `per_step`
  // unless that is null.
  virtual double sample(const std::vector<DeviceStep>& steps, std::int64_t invocations, Timer timer,
                        double* per_step) = 0;
  // Flushes the caches by writing to memory larger than them.
  virtual void flush() = 0;
};

}  // namespace memkern
