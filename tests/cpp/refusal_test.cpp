// Refused system calls: who refuses them, from fake trees of the system's files.
#include "core/refusal.hpp"

#include <cerrno>

#include "support.hpp"

namespace memkern {
namespace {

using testing::contains;

class Refusal : public testing::FakeRoot {
 protected:
  Refusal() { unsetenv("SNAP_NAME"); }
  ~Refusal() override { unsetenv("SNAP_NAME"); }
  std::string why(int error = EPERM, const char* capability = "") const {
    return refused("mbind", error, capability, root_);
  }
};

TEST_F(Refusal, NamesWhoRefusesAndTheCure) {
  write("/proc/self/status", "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t2\n");
  EXPECT_FALSE(filtered(root_));
  EXPECT_TRUE(contains(why(), "the system does not permit mbind (Operation not permitted)"));
  write("/proc/self/status", "Name:\tx\nSeccomp:\t2\n");
  EXPECT_TRUE(filtered(root_));
  EXPECT_TRUE(contains(why(), "a filter of system calls (seccomp) does not permit mbind"));
  for (const char* path : {"/.dockerenv", "/run/.containerenv"}) {
    write(path, "");
    EXPECT_TRUE(contains(why(), "this container does not permit mbind"));
    EXPECT_TRUE(contains(why(ENOSYS, "SYS_NICE"), "seccomp=unconfined, or --cap-add SYS_NICE"));
    std::filesystem::remove(root_ + path);
  }
  setenv("SNAP_NAME", "code", 1);
  EXPECT_TRUE(contains(why(EACCES), "the snap 'code' does not permit mbind"));
}

TEST_F(Refusal, OtherErrorsHaveNoCure) {
  write("/.dockerenv", "");
  EXPECT_EQ(why(EINVAL), "the system refuses mbind (Invalid argument)");
}

}  // namespace
}  // namespace memkern
