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
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

namespace memkern {
namespace {

// Larger than any memory; a version 1 cgroup without a limit has a larger number.
constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

struct Described {
  std::int64_t most_B = kUnlimited;
  std::vector<std::int64_t> nodes_B;
};

Described& described() {
  static Described memory;
  return memory;
}

// Adds the memory that a limit of this process leaves of a resource beside what it uses, which is
// the value of `usage` in /proc/self/status.
void limit_by(int resource, const std::string& root, const char* usage, const char* source,
              MemoryLimit& smallest) {
  rlimit found{};
  if (getrlimit(resource, &found) != 0 || found.rlim_cur >= static_cast<rlim_t>(kUnlimited)) return;
  const std::int64_t used_B = read_keyed(root + "/proc/self/status", usage);
  const std::int64_t left = std::max<std::int64_t>(
      0, static_cast<std::int64_t>(found.rlim_cur) - std::max<std::int64_t>(0, used_B));
  if (left < smallest.available_B) smallest = {left, source};
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

std::int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

std::int64_t read_keyed(const std::string& path, const std::string& key,
                        const std::string& before) {
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

std::vector<std::string> cgroup_folders(std::string_view controller, const std::string& root) {
  std::vector<std::string> folders;
  // Lines are "id:controllers:path"; v2 has id 0 and no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string name(controller);
    std::vector<std::string> mounts;
    if (controllers == ",,") {
      mounts = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    } else if (controllers.find("," + name + ",") != std::string::npos) {
      mounts = {"/sys/fs/cgroup/" + name};
    }
    for (const std::string& mount : mounts) {
      // From the group to the root of the hierarchy: the limits of all ancestors apply.
      for (std::string path = line.substr(second + 1); true;) {
        folders.push_back(root + mount + (path == "/" ? "" : path));
        if (path.empty() || path == "/") break;
        const std::size_t slash = path.rfind('/');
        path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
      }
    }
  }
  return folders;
}

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
  std::vector<int> all;
  std::error_code error;
  const std::filesystem::path folder = root + "/sys/devices/system/node";
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    int node = -1;
    const std::string name = entry->path().filename();
    if (std::sscanf(name.c_str(), "node%d", &node) == 1) all.push_back(node);
  }
  if (all.size() < 2) return {};
  std::vector<int> nodes = root.empty() ? policy_nodes() : std::vector<int>();
  std::ifstream status(root + "/proc/self/status");
  const std::string key = "Mems_allowed_list:";
  for (std::string line; nodes.empty() && std::getline(status, line);) {
    if (line.starts_with(key)) nodes = parse_list(line.substr(key.size()));
  }
  // The kernel allows nodes that a machine does not have.
  std::erase_if(nodes,
                [&](int node) { return std::find(all.begin(), all.end(), node) == all.end(); });
  return nodes.size() < all.size() ? nodes : std::vector<int>();
}

MemoryLimit shared_memory_limit(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return {kUnlimited, "nothing"};
  return {static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize),
          folder};
}

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit smallest{kUnlimited, "nothing"};
  const std::string memory = root + "/proc/meminfo";
  const std::int64_t available = read_keyed(memory, "MemAvailable:");
  if (available >= 0) smallest = {available, "available memory"};
  limit_by(RLIMIT_AS, root, "VmSize:", "address space limit (ulimit -v)", smallest);
  limit_by(RLIMIT_DATA, root, "VmData:", "data limit (ulimit -d)", smallest);
  if (read_number(root + "/proc/sys/vm/overcommit_memory") == 2) {
    const std::int64_t commit_B = read_keyed(memory, "CommitLimit:");
    const std::int64_t left =
        std::max<std::int64_t>(0, commit_B - read_keyed(memory, "Committed_AS:"));
    if (commit_B >= 0 && left < smallest.available_B) {
      smallest = {left, "commit limit (vm.overcommit_memory=2)"};
    }
  }
  for (const std::string& folder : cgroup_folders("memory", root)) {
    for (const auto& [most, usage, reclaimable] :
         {std::tuple{"/memory.max", "/memory.current", "inactive_file"},
          std::tuple{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"}}) {
      const std::int64_t limit = read_number(folder + most);
      const std::int64_t used = read_number(folder + usage);
      if (limit < 0 || used < 0) continue;
      // Inactive page cache counts as usage but can be reclaimed.
      const std::int64_t cache =
          std::max<std::int64_t>(0, read_keyed(folder + "/memory.stat", reclaimable));
      const std::int64_t left =
          std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used - cache));
      if (left < smallest.available_B) {
        smallest = {left, "cgroup limit of " + folder.substr(root.size())};
      }
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

std::string thread_limit(const std::string& root) {
  for (const std::string& folder : cgroup_folders("pids", root)) {
    const std::int64_t most = read_number(folder + "/pids.max");
    if (most >= 0 && read_number(folder + "/pids.current") >= most) {
      return "the control group " + folder.substr(root.size()) + " permits " +
             std::to_string(most) + " processes and threads (pids.max; docker run --pids-limit)";
    }
  }
  MemoryLimit space{kUnlimited, ""};
  limit_by(RLIMIT_AS, root, "VmSize:", "", space);
  constexpr rlim_t kStack_B = rlim_t{1} << 23;  // where the limit is larger, or there is none
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  if (std::cmp_less(space.available_B, std::min(stack.rlim_cur, kStack_B))) {
    return "the address space limit (ulimit -v) leaves no room for the stack of another thread";
  }
  rlimit processes{};
  getrlimit(RLIMIT_NPROC, &processes);
  if (processes.rlim_cur != RLIM_INFINITY && geteuid() != 0) {
    return "the user may have " + std::to_string(processes.rlim_cur) +
           " processes and threads (ulimit -u)";
  }
  return "the system has no more of them (kernel.threads-max, kernel.pid_max)";
}

}  // namespace memkern
