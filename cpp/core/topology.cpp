#include "core/topology.hpp"

#include <hwloc/cpukinds.h>

#include <algorithm>

#include "core/errors.hpp"

namespace memkern {

const Topology& Topology::instance() {
  static const Topology topology;
  return topology;
}

Topology::Topology() {
  if (hwloc_topology_init(&handle_) != 0 || hwloc_topology_load(handle_) != 0) {
    throw std::runtime_error("hwloc could not read this machine's topology");
  }
  // Only the units that taskset or a batch system has left to this process.
  const hwloc_bitmap_t given = hwloc_bitmap_alloc();
  if (hwloc_get_cpubind(handle_, given, HWLOC_CPUBIND_PROCESS) == 0) {
    hwloc_topology_restrict(handle_, given, 0);
  }
  hwloc_bitmap_free(given);
  const int units = hwloc_get_nbobjs_by_type(handle_, HWLOC_OBJ_PU);
  for (int i = 0; i < units; ++i) {
    const hwloc_obj_t pu = hwloc_get_obj_by_type(handle_, HWLOC_OBJ_PU, static_cast<unsigned>(i));
    units_.push_back(static_cast<int>(pu->os_index));
  }
  constexpr hwloc_obj_type_t kLevels[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                          HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
  for (int level = 0; level < 5; ++level) {
    const int instances = hwloc_get_nbobjs_by_type(handle_, kLevels[level]);
    if (instances <= 0) continue;
    const hwloc_obj_t cache = hwloc_get_obj_by_type(handle_, kLevels[level], 0);
    caches_.push_back({level + 1, static_cast<std::int64_t>(cache->attr->cache.size),
                       static_cast<int>(cache->attr->cache.linesize), instances,
                       hwloc_bitmap_weight(cache->cpuset)});
  }
}

Topology::~Topology() { hwloc_topology_destroy(handle_); }

std::int64_t Topology::last_level_cache_B() const {
  if (caches_.empty()) return 0;
  return caches_.back().size_B * caches_.back().instances;
}

int Topology::cores() const { return hwloc_get_nbobjs_by_type(handle_, HWLOC_OBJ_CORE); }

int Topology::core_of(int unit) const {
  const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(handle_, static_cast<unsigned>(unit));
  const hwloc_obj_t core =
      pu == nullptr ? nullptr : hwloc_get_ancestor_obj_by_type(handle_, HWLOC_OBJ_CORE, pu);
  return core == nullptr ? unit : static_cast<int>(core->logical_index);
}

int Topology::kind_of(int unit) const {
  const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(handle_, static_cast<unsigned>(unit));
  return pu == nullptr ? 0 : std::max(hwloc_cpukinds_get_by_cpuset(handle_, pu->cpuset, 0), 0);
}

int Topology::packages() const { return hwloc_get_nbobjs_by_type(handle_, HWLOC_OBJ_PACKAGE); }

std::vector<int> Topology::numa_nodes() const {
  std::vector<int> nodes;
  const int count = hwloc_get_nbobjs_by_type(handle_, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(handle_, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    nodes.push_back(static_cast<int>(node->os_index));
  }
  return nodes;
}

std::vector<int> Topology::compact(int workers) const {
  std::vector<int> chosen;
  for (int w = 0; w < workers; ++w) {
    chosen.push_back(units_[static_cast<std::size_t>(w) % units_.size()]);
  }
  return chosen;
}

std::vector<int> Topology::spread(int workers) const {
  std::vector<hwloc_bitmap_t> sets(static_cast<std::size_t>(workers));
  hwloc_obj_t root = hwloc_get_root_obj(handle_);
  if (hwloc_distrib(handle_, &root, 1, sets.data(), static_cast<unsigned>(workers), 64, 0) != 0) {
    throw std::runtime_error("hwloc could not spread the workers over the machine");
  }
  std::vector<int> chosen;
  for (hwloc_bitmap_t set : sets) {
    chosen.push_back(hwloc_bitmap_first(set));
    hwloc_bitmap_free(set);
  }
  return chosen;
}

}  // namespace memkern
