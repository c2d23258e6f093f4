// How much more memory and how many more threads this process can have before the system refuses
// them or kills the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memkern {

struct MemoryLimit {
  std::int64_t available_B;
  std::string source;  // which limit is the smallest; "nothing" if none is known
};

// The smallest of MemAvailable, RLIMIT_AS, RLIMIT_DATA, the commit limit (vm.overcommit_memory=2)
// and the limits of the process's cgroup and its ancestors (v1 and v2), minus their usage. `root`
// is prepended to every path, for tests.
MemoryLimit memory_limit(const std::string& root = "");

// Which limit refuses another thread of this process, as the end of a sentence: that of a cgroup,
// of the user, of the system or of the address space.
std::string thread_limit(const std::string& root = "");

// The folders of this process's cgroups and of their ancestors in both versions' hierarchies; in
// version 1 those of a controller.
std::vector<std::string> cgroup_folders(std::string_view controller, const std::string& root);

// The first number in a file: -1 if there is none ("max" in cgroup v2), or no file.
std::int64_t read_number(const std::string& path);

// The value after `key` in files of "key value" or "key: value kB" lines, of which each begins with
// `before`; -1 if absent.
std::int64_t read_keyed(const std::string& path, const std::string& key,
                        const std::string& before = "");

// Limits the available memory to that of a machine described by tests.
void describe_memory(std::optional<std::int64_t> available_B);

}  // namespace memkern
