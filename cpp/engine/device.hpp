// Interface of an accelerator with its own memory and kernels, implemented by a backend. C++17, as
// CUDA sources include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device_memory.hpp"
#include "engine/registry.hpp"

namespace memkern {

// Starts the iterations of `range` in blocks of `threads` threads on a queue of the device, without
// waiting for them. Without a queue, only loads their code.
using Launch = void (*)(const void* args, Range range, int threads, void* queue);

struct DeviceEntry : Entry {
  Launch launch = nullptr;
  int threads = 0;  // default threads per block
  // Prepares a launch with these arguments, independently of values; called before a sample, unless
  // it is null.
  Launch prepare = nullptr;
};

// One kernel of a sequence, its arguments and its range.
struct DeviceStep {
  Launch launch = nullptr;
  const void* args = nullptr;
  Range range{};
  int threads = 0;
  Launch prepare = nullptr;
  int shared_B = 0;  // additional shared memory of each block
};

// How a sample is timed. Host: wall-clock time between two synchronisations. Events: time between
// two events in the device's queue. Graph: as Host, but the invocations are launched as graphs that
// were built before.
enum class Timer { Host, Events, Graph };

// A sequence of steps that is ready to be sampled, with the state that a device keeps between
// samples. The arguments of the steps remain the same as long as it exists.
class Sequence {
 public:
  virtual ~Sequence() = default;
  // Seconds of `invocations` invocations. Adds each step's seconds to `per_step` unless that is
  // null, as it has to be with Timer::Graph.
  virtual double sample(std::int64_t invocations, double* per_step) = 0;
};

class Device : public DeviceMemory {
 public:
  virtual const std::string& isa() const = 0;  // such as "sm_90"
  virtual int units() const = 0;               // multiprocessors, or ranks
  // Number of processes that share the device and call its functions in the same order.
  virtual int ranks() const { return 1; }
  virtual int max_threads() const = 0;  // per block
  virtual const std::vector<DeviceEntry>& entries() const = 0;

  virtual std::unique_ptr<Sequence> prepare(const std::vector<DeviceStep>& steps, Timer timer);
  // A single sample of a sequence.
  virtual double sample(const std::vector<DeviceStep>& steps, std::int64_t invocations, Timer timer,
                        double* per_step) = 0;

  virtual std::int64_t cache_B() const = 0;  // of the last-level cache
  // Evicts the caches by writing `bytes` bytes and then reading as many others, whose lines need
  // not be written back while the next sample is timed.
  virtual void flush(std::byte* written, std::byte* read, std::int64_t bytes) = 0;
};

// Calls the device's `sample` each time, for devices without such state.
class PlainSequence : public Sequence {
 public:
  PlainSequence(Device& device, std::vector<DeviceStep> steps, Timer timer)
      : device_(device), steps_(std::move(steps)), timer_(timer) {}
  double sample(std::int64_t invocations, double* per_step) override {
    return device_.sample(steps_, invocations, timer_, per_step);
  }

 private:
  Device& device_;
  std::vector<DeviceStep> steps_;
  Timer timer_;
};

inline std::unique_ptr<Sequence> Device::prepare(const std::vector<DeviceStep>& steps,
                                                 Timer timer) {
  return std::make_unique<PlainSequence>(*this, steps, timer);
}

}  // namespace memkern
