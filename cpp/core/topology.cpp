#include "core/topology.hpp"

#include <hwloc/cpukinds.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/errors.hpp"

namespace memkern {

namespace {

struct Description {
  std::optional<MachineDescription> machine;
  std::unique_ptr<const Topology> topology;
};

Description& description() {
  static Description current;
  return current;
}

// The topologies of this machine by the units that this process might use, and the one with those
// that it may use now.
struct Found {
  std::mutex mutex;
  std::map<std::vector<int>, std::unique_ptr<const Topology>> by_units;
  std::atomic<const Topology*> now = nullptr;
};

Found& found() {
  static Found topologies;
  return topologies;
}

// The model of the processors by the system, empty if unknown.
std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

// The variables that make hwloc use another topology than the detected one.
std::string replaced_by() {
  for (const char* name :
       {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT", "HWLOC_CPUID_PATH"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) return std::string(name) + "=" + value;
  }
  return "";
}

// Refuses a topology from a variable unless it is the topology of this machine, whose processors
// `given` this process may use. Launchers export one in HWLOC_XMLFILE, so that their processes need
// not detect it.
void check_is_of_this_machine(hwloc_topology_t handle, hwloc_const_bitmap_t given) {
  if (replaced_by().empty()) return;
  const hwloc_obj_t package = hwloc_get_obj_by_type(handle, HWLOC_OBJ_PACKAGE, 0);
  const char* named =
      package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  const std::string model = named == nullptr ? "" : named;
  const std::string here = processor_model();
  const hwloc_const_bitmap_t units = hwloc_topology_get_complete_cpuset(handle);
  const bool present = hwloc_bitmap_last(units) < sysconf(_SC_NPROCESSORS_CONF);
  const bool same = model.empty() || here.empty() || model == here;
  if (present && same && hwloc_bitmap_isincluded(given, units) != 0) return;
  throw InputError("hwloc describes another machine than this one, because of " + replaced_by() +
                   ": unset it, or name this machine's topology");
}

}  // namespace

const Topology& Topology::instance() {
  const Description& current = description();
  return current.topology ? *current.topology : of_this_machine();
}

const Topology& Topology::of_this_machine() {
  if (found().now == nullptr) read_units();
  return *found().now;
}

void Topology::read_units() {
  std::array<cpu_set_t, 16> mask{};
  const bool known = sched_getaffinity(0, sizeof mask, mask.data()) == 0;
  std::vector<int> units;
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> given(hwloc_bitmap_alloc(),
                                                                            &hwloc_bitmap_free);
  for (std::size_t unit = 0; known && unit < 8 * sizeof mask; ++unit) {
    if (CPU_ISSET_S(unit, sizeof mask, mask.data()) == 0) continue;
    units.push_back(static_cast<int>(unit));
    hwloc_bitmap_set(given.get(), static_cast<unsigned>(unit));
  }
  const std::scoped_lock lock(found().mutex);
  std::unique_ptr<const Topology>& topology = found().by_units[units];
  if (!topology) topology.reset(new Topology(nullptr, known ? given.get() : nullptr));
  found().now = topology.get();
}

const std::optional<MachineDescription>& Topology::described() { return description().machine; }

void Topology::describe(std::optional<MachineDescription> machine) {
  std::unique_ptr<const Topology> topology;
  if (machine) topology.reset(new Topology(&*machine, nullptr));
  description() = {std::move(machine), std::move(topology)};
}

Topology::Topology(const MachineDescription* described, hwloc_const_bitmap_t given) {
  hwloc_topology_t handle = nullptr;
  hwloc_topology_init(&handle);
  handle_.reset(handle);
  if (described != nullptr &&
      hwloc_topology_set_synthetic(handle, described->topology.c_str()) != 0) {
    throw InputError("hwloc refused the described topology '" + described->topology + "'");
  }
  if (described == nullptr) {
    // A topology from a variable is also this machine's; otherwise binding would be disabled.
    hwloc_topology_set_flags(handle, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
  }
  setenv("HWLOC_HIDE_ERRORS", "2", 0);  // messages about faults in a system's tables
  if (hwloc_topology_load(handle) != 0) {
    if (described == nullptr && !replaced_by().empty()) {
      throw InputError("hwloc could not read the topology of " + replaced_by() + ": unset it");
    }
    throw std::runtime_error("hwloc could not read this machine's topology");
  }
  if (described == nullptr) {
    // Only the units that taskset or a batch system allows this process.
    if (given != nullptr) {
      check_is_of_this_machine(handle, given);
      hwloc_topology_restrict(handle, given, 0);
    }
  } else {
    std::map<int, hwloc_bitmap_t> units_of_kind;
    for (std::size_t core = 0; core < described->kinds.size(); ++core) {
      const hwloc_obj_t at =
          hwloc_get_obj_by_type(handle, HWLOC_OBJ_CORE, static_cast<unsigned>(core));
      if (at == nullptr) throw InputError("kinds has more values than there are cores");
      hwloc_bitmap_t& units = units_of_kind[described->kinds[core]];
      if (units == nullptr) units = hwloc_bitmap_alloc();
      hwloc_bitmap_or(units, units, at->cpuset);
    }
    for (const auto& [kind, units] : units_of_kind) {
      hwloc_cpukinds_register(handle, units, kind, 0, nullptr, 0);
      hwloc_bitmap_free(units);
    }
  }
  const int units = hwloc_get_nbobjs_by_type(handle, HWLOC_OBJ_PU);
  for (int i = 0; i < units; ++i) {
    const hwloc_obj_t pu = hwloc_get_obj_by_type(handle, HWLOC_OBJ_PU, static_cast<unsigned>(i));
    units_.push_back(static_cast<int>(pu->os_index));
  }
  constexpr hwloc_obj_type_t kLevels[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                          HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
  for (int level = 0; level < 5; ++level) {
    const int instances = hwloc_get_nbobjs_by_type(handle, kLevels[level]);
    if (instances <= 0) continue;
    const hwloc_obj_t cache = hwloc_get_obj_by_type(handle, kLevels[level], 0);
    caches_.push_back(
        {level + 1, static_cast<std::int64_t>(cache->attr->cache.size),
         described == nullptr ? static_cast<int>(cache->attr->cache.linesize) : described->line_B,
         instances, hwloc_bitmap_weight(cache->cpuset)});
  }
}

int Topology::processor_of(int unit) const {
  if (this == &of_this_machine()) return unit;
  const std::vector<int>& processors = of_this_machine().units_;
  return processors[static_cast<std::size_t>(unit) % processors.size()];
}

std::int64_t Topology::page_B() const {
  static const std::int64_t own_B = sysconf(_SC_PAGESIZE);
  const std::optional<MachineDescription>& machine = described();
  return machine && machine->page_B != 0 ? machine->page_B : own_B;
}

std::int64_t Topology::last_level_cache_B() const {
  if (caches_.empty()) return 0;
  return caches_.back().size_B * caches_.back().instances;
}

int Topology::cores() const { return hwloc_get_nbobjs_by_type(handle_.get(), HWLOC_OBJ_CORE); }

int Topology::core_of(int unit) const {
  const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(handle_.get(), static_cast<unsigned>(unit));
  const hwloc_obj_t core =
      pu == nullptr ? nullptr : hwloc_get_ancestor_obj_by_type(handle_.get(), HWLOC_OBJ_CORE, pu);
  return core == nullptr ? unit : static_cast<int>(core->logical_index);
}

int Topology::kind_of(int unit) const {
  const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(handle_.get(), static_cast<unsigned>(unit));
  return pu == nullptr ? 0
                       : std::max(hwloc_cpukinds_get_by_cpuset(handle_.get(), pu->cpuset, 0), 0);
}

int Topology::packages() const {
  return hwloc_get_nbobjs_by_type(handle_.get(), HWLOC_OBJ_PACKAGE);
}

std::vector<int> Topology::numa_nodes() const {
  std::vector<int> nodes;
  const int count = hwloc_get_nbobjs_by_type(handle_.get(), HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(handle_.get(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    nodes.push_back(static_cast<int>(node->os_index));
  }
  return nodes;
}

bool Topology::bind_memory(void* data, std::int64_t bytes, const std::vector<int>& nodes,
                           hwloc_membind_policy_t policy) const {
  const Topology& real = of_this_machine();
  const std::vector<int> known = real.numa_nodes();
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  for (const int node : nodes) {
    const int there = this == &real ? node : known[static_cast<std::size_t>(node) % known.size()];
    hwloc_bitmap_set(set, static_cast<unsigned>(there));
  }
  const int rc = hwloc_set_area_membind(real.handle_.get(), data, static_cast<std::size_t>(bytes),
                                        set, policy, HWLOC_MEMBIND_BYNODESET);
  const int error = errno;
  hwloc_bitmap_free(set);
  errno = error;
  return rc == 0;
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
  hwloc_obj_t root = hwloc_get_root_obj(handle_.get());
  if (hwloc_distrib(handle_.get(), &root, 1, sets.data(), static_cast<unsigned>(workers), 64, 0) !=
      0) {
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
