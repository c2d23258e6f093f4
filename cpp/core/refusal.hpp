// Why the system refuses a call, and what would permit it.
#pragma once

#include <string>

namespace memkern {

// "this container does not permit mbind (Operation not permitted): start it with ...", after the
// error number of a system call; other errors are only described. `capability` is the capability
// that permits the call in a container, such as "SYS_NICE", empty if none does. `root` is prepended
// to every path, for tests.
std::string refused(const char* call, int error, const char* capability,
                    const std::string& root = "");

// Whether a filter of system calls (seccomp) is active in this process.
bool filtered(const std::string& root = "");

}  // namespace memkern
