#include "core/limits.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace memkern {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// -1 if the file does not exist or contains no number ("max" in cgroup v2).
std::int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

// The value after `key` in files of "key value" or "key: value kB" lines; -1 if absent.
std::int64_t read_keyed(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
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

std::int64_t& described_B() {
  static std::int64_t most_B = kUnlimited;
  return most_B;
}

}  // namespace

void describe_memory(std::optional<std::int64_t> available_B) {
  described_B() = available_B.value_or(kUnlimited);
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
  if (root.empty() && described_B() < smallest.available_B) {
    smallest = {described_B(), "available memory"};
  }
  return smallest;
}

}  // namespace memkern
