// Entries of kernels that are planned before a sample.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backends/ranks/settings.hpp"
#include "core/body.hpp"
#include "engine/device.hpp"

namespace memkern::ranks {

// The plans of one case's entries. The array's address is unique among cases.
struct Plans {
  struct Any {
    Any() = default;
    Any(const Any&) = delete;
    Any& operator=(const Any&) = delete;
    virtual ~Any() = default;
  };
  const void* array = nullptr;
  std::vector<std::unique_ptr<Any>> all;

  // Of the case that was prepared last. Never destroyed, since the library ends earlier.
  static Plans& last() {
    static auto* only = new Plans;
    return *only;
  }
};

// A Plan is constructed from its Args and a range of iterations, by all ranks together, and
// executed by run(settings); key(args) is an array of the case.
template <class Plan>
class Planned {
 public:
  static DeviceEntry entry(const char* kernel, const char* variant, const char* dtype,
                           const char* index, int indices = 0) {
    return {{kernel, variant, dtype, index, nullptr, nullptr, 0, indices}, launch, 1, prepare};
  }

  static void prepare(const void* p, Range range, int, void*) {
    construct(*static_cast<const typename Plan::Args*>(p), range);
  }
  // With more arguments of the Plan, which an entry's own `prepare` has.
  template <class... More>
  static void construct(const typename Plan::Args& args, Range range, const More&... more) {
    Plans& plans = Plans::last();
    if (plans.array != Plan::key(args)) plans = {Plan::key(args), {}};
    Kept* const kept = find(args);
    if (kept != nullptr && kept->is_for(range)) return;
    std::erase_if(plans.all, [&](const auto& plan) { return plan.get() == kept; });
    plans.all.push_back(std::make_unique<Kept>(range, args, range, more...));
  }
  // Does nothing for a range that is not prepared.
  static void launch(const void* p, Range range, int, void* queue) {
    Kept* const kept = find(*static_cast<const typename Plan::Args*>(p));
    if (kept == nullptr || !kept->is_for(range)) return;
    kept->plan.run(*static_cast<const Settings*>(queue));
  }

 private:
  struct Kept : Plans::Any {
    template <class... All>
    explicit Kept(Range of, const All&... all) : plan(all...), range(of) {}
    bool is_for(Range other) const { return range.begin == other.begin && range.end == other.end; }
    Plan plan;
    Range range;
  };
  static Kept* find(const typename Plan::Args& args) {
    if (Plans::last().array != Plan::key(args)) return nullptr;
    for (const auto& plan : Plans::last().all) {
      if (auto* const kept = dynamic_cast<Kept*>(plan.get())) return kept;
    }
    return nullptr;
  }
};

}  // namespace memkern::ranks
