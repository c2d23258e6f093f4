#include "core/refusal.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace memkern {

bool filtered(const std::string& root) {
  std::ifstream file(root + "/proc/self/status");
  int mode = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Seccomp:")) mode = std::atoi(line.c_str() + line.find(':') + 1);
  }
  return mode == 2;
}

std::string refused(const char* call, int error, const char* capability, const std::string& root) {
  const std::string what = std::string(call) + " (" + std::strerror(error) + ")";
  if (error != EPERM && error != EACCES && error != ENOSYS) return "the system refuses " + what;
  const char* snap = std::getenv("SNAP_NAME");
  if (snap != nullptr) {
    return "the snap '" + std::string(snap) + "' does not permit " + what +
           ": start memkern outside of it";
  }
  std::string cure = "docker run --security-opt seccomp=unconfined";
  if (*capability != '\0') cure += std::string(", or --cap-add ") + capability;
  for (const char* path : {"/.dockerenv", "/run/.containerenv"}) {
    if (access((root + path).c_str(), F_OK) == 0) {
      return "this container does not permit " + what + ": start it with " + cure;
    }
  }
  if (filtered(root)) {
    return "a filter of system calls (seccomp) does not permit " + what +
           ", as in containers and snaps: start memkern outside of them, or a container with " +
           cure;
  }
  return "the system does not permit " + what +
         ": ask its operator, or see in dmesg which security module forbids it";
}

}  // namespace memkern
