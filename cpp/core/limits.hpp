// How much more memory this process may take before something refuses or kills it.
#pragma once

#include <cstdint>
#include <string>

namespace memkern {

struct MemoryLimit {
  std::int64_t available_B;
  std::string source;  // which limit is the smallest
};

// The smallest of MemAvailable, RLIMIT_AS and every cgroup upward (v1 and v2), limit less usage.
// `root` is prepended to every path, for tests.
MemoryLimit memory_limit(const std::string& root = "");

}  // namespace memkern
