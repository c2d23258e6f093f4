// How much more memory this process can use before the system refuses it or kills the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace memkern {

struct MemoryLimit {
  std::int64_t available_B;
  std::string source;  // which limit is the smallest
};

// The smallest of MemAvailable, RLIMIT_AS and the limits of the process's cgroup and its ancestors
// (v1 and v2), minus their usage. `root` is prepended to every path, for tests.
MemoryLimit memory_limit(const std::string& root = "");

// Limits the available memory to that of a machine described by tests.
void describe_memory(std::optional<std::int64_t> available_B);

}  // namespace memkern
