#include "core/limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <tuple>
#include <utility>

namespace memkern {
namespace {

// Larger than any memory; a version 1 cgroup without a limit has a larger number.
constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

std::int64_t& described_B() {
  static std::int64_t most_B = kUnlimited;
  return most_B;
}

// Adds the memory that `limit` leaves of its resource beside `used_B`.
void limit_by(int resource, std::int64_t used_B, const char* source, MemoryLimit& smallest) {
  rlimit found{};
  if (getrlimit(resource, &found) != 0 || found.rlim_cur >= static_cast<rlim_t>(kUnlimited)) return;
  const std::int64_t left = std::max<std::int64_t>(
      0, static_cast<std::int64_t>(found.rlim_cur) - std::max<std::int64_t>(0, used_B));
  if (left < smallest.available_B) smallest = {left, source};
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

void describe_memory(std::optional<std::int64_t> available_B) {
  described_B() = available_B.value_or(kUnlimited);
}

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit smallest{kUnlimited, "nothing"};
  const std::string memory = root + "/proc/meminfo";
  const std::string process = root + "/proc/self/status";
  const std::int64_t available = read_keyed(memory, "MemAvailable:");
  if (available >= 0) smallest = {available, "available memory"};
  limit_by(RLIMIT_AS, read_keyed(process, "VmSize:"), "address space limit (ulimit -v)", smallest);
  limit_by(RLIMIT_DATA, read_keyed(process, "VmData:"), "data limit (ulimit -d)", smallest);
  const std::int64_t commit_B = read_keyed(memory, "CommitLimit:");
  if (commit_B >= 0 && read_number(root + "/proc/sys/vm/overcommit_memory") == 2) {
    const std::int64_t left =
        std::max<std::int64_t>(0, commit_B - read_keyed(memory, "Committed_AS:"));
    if (left < smallest.available_B) smallest = {left, "commit limit (vm.overcommit_memory=2)"};
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
  if (root.empty() && described_B() < smallest.available_B) {
    smallest = {described_B(), "available memory"};
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
  limit_by(RLIMIT_AS, read_keyed(root + "/proc/self/status", "VmSize:"), "", space);
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
