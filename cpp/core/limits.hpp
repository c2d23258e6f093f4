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

// Replaces the available memory by that of a machine that tests describe, if there is less.
void describe_memory(std::optional<std::int64_t> available_B);

}  // namespace memkern
