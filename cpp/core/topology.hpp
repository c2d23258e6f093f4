// The machine as hwloc sees it: processing units, caches, NUMA nodes.
#pragma once

#include <hwloc.h>

#include <cstdint>
#include <string>
#include <vector>

namespace memkern {

struct Cache {
  int level;
  std::int64_t size_B;
  int line_B;
  int instances;
  int shared_by;  // processing units that share one instance
};

class Topology {
 public:
  static const Topology& instance();

  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  hwloc_topology_t handle() const { return handle_; }
  // Operating-system indices of the processing units this process may use, in hwloc's logical
  // order (hardware threads of a core adjacent).
  const std::vector<int>& allowed_units() const { return units_; }
  const std::vector<Cache>& caches() const { return caches_; }
  std::int64_t last_level_cache_B() const;  // sum of all instances of the highest level
  int cores() const;
  // Logical index of the core that a processing unit belongs to; `unit` itself if unknown.
  int core_of(int unit) const;
  // Kind of that core on hybrid processors, counted from the least powerful; else 0.
  int kind_of(int unit) const;
  int packages() const;
  std::vector<int> numa_nodes() const;

  // One unit per worker: neighbours close together (`compact`) or far apart (`spread`).
  std::vector<int> compact(int workers) const;
  std::vector<int> spread(int workers) const;

 private:
  Topology();
  ~Topology();

  hwloc_topology_t handle_ = nullptr;
  std::vector<int> units_;
  std::vector<Cache> caches_;
};

}  // namespace memkern
