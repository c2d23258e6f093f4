// How much more memory this process can use before the system refuses it or kills the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memkern {

struct MemoryLimit {
  std::int64_t available_B;
  std::string source;  // which limit is the smallest
};

// The smallest of MemAvailable, RLIMIT_AS and the limits of the process's cgroup and its ancestors
// (v1 and v2), minus their usage, and of the memory of the NUMA nodes to which a cpuset or numactl
// binds the process. `root` is prepended to every path, for tests.
MemoryLimit memory_limit(const std::string& root = "");

// What can be allocated on these NUMA nodes: all of their free and reclaimable memory, or, if pages
// are distributed evenly, as much on each as on the one with the least.
MemoryLimit node_limit(const std::vector<int>& nodes, bool evenly, const std::string& root = "");

// The same for the free huge pages of a size in the nodes' pools. Unlimited if the system may add
// pages to the pools when they are needed.
MemoryLimit huge_page_limit(const std::vector<int>& nodes, bool evenly, std::int64_t page_B,
                            const std::string& root = "");

// The nodes to which the process is bound; none if it may use all.
std::vector<int> bound_nodes(const std::string& root = "");

// The free bytes of the file system at which libraries keep memory that processes share; unlimited
// if there is none.
MemoryLimit shared_memory_limit(const std::string& folder);

// Limits the available memory to that of a machine described by tests; `nodes_B` is the free memory
// of each of its NUMA nodes.
void describe_memory(std::optional<std::int64_t> available_B,
                     const std::vector<std::int64_t>& nodes_B = {});

}  // namespace memkern
