// The memory of several ranks as one device, whose workers are the threads of all ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/interface.hpp"
#include "backends/ranks/library.hpp"
#include "backends/ranks/table.hpp"
#include "core/limits.hpp"
#include "engine/device.hpp"

namespace memkern::ranks {

template <class L>
class RanksDevice : public Device {
 public:
  explicit RanksDevice(const Settings& settings) : settings_(settings) {}

  const std::string& name() const override { return name_; }
  const std::string& isa() const override { return isa_; }
  int units() const override { return L::ranks(); }
  int ranks() const override { return L::ranks(); }
  int max_threads() const override { return 1; }
  const std::vector<DeviceEntry>& entries() const override { return ranks::entries(); }

  // Memory of all ranks together, limited by the rank with the least memory.
  std::int64_t free_B() const override {
    const auto own = static_cast<double>(memory_limit().available_B) / L::ranks_on_node();
    return static_cast<std::int64_t>(-L::largest(-own)) * L::ranks();
  }

  std::byte* allocate(std::int64_t bytes) override { return arrays<L>().allocate(bytes); }
  void release(std::byte* data) noexcept override { arrays<L>().release(data); }
  bool reusable() const override { return false; }
  void write(std::byte* to, const void* from, std::int64_t bytes) override {
    arrays<L>().write(to, from, bytes);
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) const override {
    arrays<L>().read(to, from, bytes);
  }
  void fill(const char* dtype, std::byte* data, std::int64_t rows, std::int64_t columns,
            std::uint32_t salt) override {
    const std::string type = dtype;
    const std::int64_t n = rows * columns;
    if (type == "float64") arrays<L>().template fill<double>(data, n, columns, salt);
    if (type == "float32") arrays<L>().template fill<float>(data, n, columns, salt);
    if (type == "uint64") arrays<L>().template fill<std::uint64_t>(data, n, columns, salt);
    if (type == "uint32") arrays<L>().template fill<std::uint32_t>(data, n, columns, salt);
  }

  // Seconds of this rank, from the release of all ranks to the completion of its own operations.
  double sample(const std::vector<DeviceStep>& steps, std::int64_t invocations, Timer,
                double* per_step) override {
    for (const DeviceStep& s : steps) {
      if (s.prepare != nullptr) s.prepare(s.args, s.range, s.threads, &settings_);
    }
    L::barrier();
    const double begin = now_s();
    double last = begin;
    for (std::int64_t k = 0; k < invocations; ++k) {
      for (std::size_t s = 0; s < steps.size(); ++s) {
        steps[s].launch(steps[s].args, steps[s].range, steps[s].threads, &settings_);
        // Reading the clock takes a considerable part of the time of a message within a node.
        if (per_step == nullptr) continue;
        const double end = now_s();
        per_step[s] += end - last;
        last = end;
      }
    }
    const double end = now_s();
    L::barrier();
    return end - begin;
  }

  // The option is refused for this device.
  std::int64_t cache_B() const override { return 0; }
  void flush(std::byte*, std::byte*, std::int64_t) override {}

 private:
  static double now_s() {
    using std::chrono::steady_clock;
    return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
  }

  Settings settings_;
  std::string name_ = L::kName;
  std::string isa_ = L::kStandard;
};

// The device with these settings. Never destroyed, since buffers are released until the process
// ends.
template <class L>
Device& device(const Settings& settings) {
  using Key = std::tuple<std::int64_t, bool, int>;
  static auto* all = new std::map<Key, std::unique_ptr<RanksDevice<L>>>;
  auto& slot = (*all)[{settings.flush_every, settings.private_contexts, settings.shift}];
  if (slot == nullptr) slot = std::make_unique<RanksDevice<L>>(settings);
  return *slot;
}

template <Library L>
Interface interface_of() {
  return {L::finish,  L::version,          L::rank,  L::ranks, L::nodes,
          L::threads, L::private_contexts, device<L>};
}

}  // namespace memkern::ranks
