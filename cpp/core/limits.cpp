#include "core/limits.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

namespace memkern {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// -1 if the file does not exist or contains no number ("max" in cgroup v2).
std::int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

// The value after `key` in files of "key value" or "key: value kB" lines, of which each begins with
// `before`; -1 if absent.
std::int64_t read_keyed(const std::string& path, const std::string& key,
                        const std::string& before = "") {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(before)) continue;
    std::istringstream words(line.substr(before.size()));
    std::string name;
    std::string unit;
    std::int64_t value = 0;
    if (!(words >> name >> value) || name != key) continue;
    return words >> unit && unit == "kB" ? value * 1024 : value;
  }
  return -1;
}

struct CgroupFiles {
  std::string mount;
  const char* limit;
  const char* usage;
  const char* reclaimable;
};

// Walks from `path` to the root of the hierarchy: the limits of all ancestors apply.
void walk_upward(const CgroupFiles& files, std::string path, MemoryLimit& smallest) {
  while (true) {
    const std::string folder = files.mount + (path == "/" ? "" : path);
    const std::int64_t limit = read_number(folder + "/" + files.limit);
    const std::int64_t usage = read_number(folder + "/" + files.usage);
    if (limit >= 0 && usage >= 0) {
      // Inactive page cache counts as usage but can be reclaimed.
      const std::int64_t cache =
          std::max<std::int64_t>(0, read_keyed(folder + "/memory.stat", files.reclaimable));
      const std::int64_t left =
          std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, usage - cache));
      if (left < smallest.available_B) smallest = {left, "cgroup limit of " + path};
    }
    if (path.empty() || path == "/") return;
    const std::size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
}

struct Described {
  std::int64_t most_B = kUnlimited;
  std::vector<std::int64_t> nodes_B;
};

Described& described() {
  static Described memory;
  return memory;
}

std::string node_folder(const std::string& root, int node) {
  return root + "/sys/devices/system/node/node" + std::to_string(node);
}

// Free memory of a node and its page cache, which can be reclaimed; -1 if unknown.
std::int64_t node_B(const std::string& root, int node) {
  const auto& nodes_B = described().nodes_B;
  if (root.empty() && std::cmp_less(node, nodes_B.size())) {
    return nodes_B[static_cast<std::size_t>(node)];
  }
  const std::string path = node_folder(root, node) + "/meminfo";
  const std::string before = "Node " + std::to_string(node) + " ";
  const std::int64_t free = read_keyed(path, "MemFree:", before);
  if (free < 0) return -1;
  std::int64_t sum = free;
  for (const char* key : {"Active(file):", "Inactive(file):", "SReclaimable:"}) {
    sum += std::max<std::int64_t>(0, read_keyed(path, key, before));
  }
  return sum;
}

// The limit of several nodes with `each_B` bytes; unlimited if that of one is unknown.
MemoryLimit of_nodes(const std::vector<int>& nodes, const std::vector<std::int64_t>& each_B,
                     bool evenly, const std::string& what) {
  MemoryLimit limit{nodes.empty() ? kUnlimited : 0, ""};
  std::string names;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    if (each_B[k] < 0) return {kUnlimited, "nothing"};
    names += (k == 0 ? "" : ",") + std::to_string(nodes[k]);
    limit.available_B += each_B[k];
  }
  limit.source = what + " of NUMA node" + (nodes.size() > 1 ? "s " : " ") + names;
  if (!evenly || nodes.empty()) return limit;
  const auto least = std::min_element(each_B.begin(), each_B.end());
  const auto count = static_cast<std::int64_t>(nodes.size());
  const int node = nodes[static_cast<std::size_t>(least - each_B.begin())];
  return {*least * count, what + " of NUMA node " + std::to_string(node) + ", which gets 1/" +
                              std::to_string(count) + " of the pages,"};
}

// The numbers in "0-3,8".
std::vector<int> parse_list(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = -1;
    int last = -1;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (read < 1) continue;
    for (int k = first; k <= (read == 2 ? last : first); ++k) numbers.push_back(k);
  }
  return numbers;
}

// The nodes of the calling thread's policy, if it binds memory; none otherwise.
std::vector<int> policy_nodes() {
  constexpr int kBind = 2;             // MPOL_BIND of the kernel's mempolicy.h
  constexpr int kModes = 0xff;         // without its flags
  constexpr std::size_t kBits = 4096;  // at least the kernel's number of nodes
  constexpr std::size_t kWord = 8 * sizeof(unsigned long);
  std::array<unsigned long, kBits / kWord> mask{};
  int mode = 0;
  std::vector<int> nodes;
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), kBits, nullptr, 0) != 0) return nodes;
  for (std::size_t k = 0; (mode & kModes) == kBind && k < kBits; ++k) {
    if ((mask.at(k / kWord) >> (k % kWord) & 1U) != 0) nodes.push_back(static_cast<int>(k));
  }
  return nodes;
}

}  // namespace

void describe_memory(std::optional<std::int64_t> available_B,
                     const std::vector<std::int64_t>& nodes_B) {
  described() = {available_B.value_or(kUnlimited), nodes_B};
}

MemoryLimit node_limit(const std::vector<int>& nodes, bool evenly, const std::string& root) {
  std::vector<std::int64_t> each_B;
  for (const int node : nodes) each_B.push_back(node_B(root, node));
  return of_nodes(nodes, each_B, evenly, "free memory");
}

MemoryLimit huge_page_limit(const std::vector<int>& nodes, bool evenly, std::int64_t page_B,
                            const std::string& root) {
  const std::string pool = "/hugepages-" + std::to_string(page_B / 1024) + "kB";
  if (read_number(root + "/sys/kernel/mm/hugepages" + pool + "/nr_overcommit_hugepages") > 0) {
    return {kUnlimited, "nothing"};
  }
  std::vector<std::int64_t> each_B;
  for (const int node : nodes) {
    const std::int64_t free =
        read_number(node_folder(root, node) + "/hugepages" + pool + "/free_hugepages");
    each_B.push_back(free < 0 ? -1 : free * page_B);
  }
  return of_nodes(nodes, each_B, evenly, "the pool");
}

std::vector<int> bound_nodes(const std::string& root) {
  std::vector<int> nodes;
  std::ifstream status(root + "/proc/self/status");
  const std::string key = "Mems_allowed_list:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) nodes = parse_list(line.substr(key.size()));
  }
  if (const std::vector<int> policy = root.empty() ? policy_nodes() : std::vector<int>();
      !policy.empty()) {
    nodes = policy;
  }
  // The kernel allows nodes that a machine does not have.
  std::error_code error;
  const auto absent = [&](int node) {
    return !std::filesystem::exists(node_folder(root, node), error);
  };
  std::erase_if(nodes, absent);
  const std::filesystem::path all = root + "/sys/devices/system/node";
  for (std::filesystem::directory_iterator entry(all, error), end; !error && entry != end;
       entry.increment(error)) {
    int node = -1;
    const std::string name = entry->path().filename();
    if (std::sscanf(name.c_str(), "node%d", &node) != 1) continue;
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) return nodes;
  }
  return {};
}

MemoryLimit shared_memory_limit(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return {kUnlimited, "nothing"};
  return {static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize),
          folder};
}

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit smallest{kUnlimited, "nothing"};
  const std::int64_t available = read_keyed(root + "/proc/meminfo", "MemAvailable:");
  if (available >= 0) smallest = {available, "available memory"};

  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
    const std::int64_t used =
        std::max<std::int64_t>(0, read_keyed(root + "/proc/self/status", "VmSize:"));
    const std::int64_t limit = static_cast<std::int64_t>(
        std::min<rlim_t>(address_space.rlim_cur, static_cast<rlim_t>(kUnlimited)));
    const std::int64_t left = std::max<std::int64_t>(0, limit - used);
    if (left < smallest.available_B) smallest = {left, "address space limit (ulimit -v)"};
  }

  // Lines are "id:controllers:path"; v2 has id 0 and no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        walk_upward({root + mount, "memory.max", "memory.current", "inactive_file"}, path,
                    smallest);
      }
    } else if (controllers.find(",memory,") != std::string::npos) {
      walk_upward({root + "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                   "total_inactive_file"},
                  path, smallest);
    }
  }
  if (const MemoryLimit nodes = node_limit(bound_nodes(root), false, root);
      nodes.available_B < smallest.available_B) {
    smallest = nodes;
  }
  if (root.empty() && described().most_B < smallest.available_B) {
    smallest = {described().most_B, "available memory"};
  }
  return smallest;
}

}  // namespace memkern
