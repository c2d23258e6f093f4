// The machine by hwloc: processing units, caches, NUMA nodes.
#pragma once

#include <hwloc.h>

#include <cstdint>
#include <memory>
#include <optional>
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

// A machine described by tests, so that machine-dependent code is tested on any machine.
struct MachineDescription {
  std::string topology;                   // hwloc's synthetic format: "pack:2 core:4 pu:2"
  int line_B = 64;                        // of all caches
  std::vector<int> kinds;                 // of each core; none: all cores are of one kind
  std::int64_t page_B = 0;                // base page; 0: that of this machine
  std::optional<std::string> widest_isa;  // wider instruction sets are left out
};

class Topology {
 public:
  // This machine, or the described one. A later description destroys the earlier one.
  static const Topology& instance();
  // This machine, even if another one is described, with the units that read_units() has found.
  static const Topology& of_this_machine();
  // Reads again which units this process may use, because taskset, control groups and processors
  // that are switched off change them. To be called while the calling thread is not bound to a
  // worker's unit. References to earlier topologies stay valid.
  static void read_units();
  static const std::optional<MachineDescription>& described();
  // Throws InputError if hwloc refuses the topology.
  static void describe(std::optional<MachineDescription> machine);

  // Operating-system indices of the processing units this process may use, in hwloc's logical
  // order (hardware threads of a core adjacent).
  const std::vector<int>& allowed_units() const { return units_; }
  // The processor of this machine on which a unit's worker runs: the unit itself, unless the
  // machine is described.
  int processor_of(int unit) const;
  std::int64_t page_B() const;  // base page
  const std::vector<Cache>& caches() const { return caches_; }
  std::int64_t last_level_cache_B() const;  // sum of all instances of the highest level
  int cores() const;
  // Logical index of the core that a processing unit belongs to; `unit` itself if unknown.
  int core_of(int unit) const;
  // Kind of that core on hybrid processors, counted from the least powerful; else 0.
  int kind_of(int unit) const;
  int packages() const;
  std::vector<int> numa_nodes() const;
  // Places memory on nodes; returns false and sets errno if the system refuses.
  bool bind_memory(void* data, std::int64_t bytes, const std::vector<int>& nodes,
                   hwloc_membind_policy_t policy) const;

  // One unit per worker: neighbours close together (`compact`) or far apart (`spread`).
  std::vector<int> compact(int workers) const;
  std::vector<int> spread(int workers) const;

 private:
  // Of a described machine, or of this one with the units of `given`, all if it is null.
  Topology(const MachineDescription* described, hwloc_const_bitmap_t given);

  struct Destroy {
    void operator()(hwloc_topology_t handle) const { hwloc_topology_destroy(handle); }
  };
  std::unique_ptr<hwloc_topology, Destroy> handle_;
  std::vector<int> units_;
  std::vector<Cache> caches_;
};

}  // namespace memkern
