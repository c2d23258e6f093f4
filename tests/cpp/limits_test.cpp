// Memory limits, read from fake trees of the kernel's files; tests/test_limits.py has further ones.
#include "core/limits.hpp"

#include "core/arithmetic.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

class FakeRoot : public testing::FakeRoot {
 protected:
  void group(const std::string& folder, const std::string& limit, const std::string& usage,
             const std::string& stat = "") const {
    const bool v1 = folder.find("/cgroup/memory") != std::string::npos;
    write(folder + (v1 ? "/memory.limit_in_bytes" : "/memory.max"), limit + "\n");
    write(folder + (v1 ? "/memory.usage_in_bytes" : "/memory.current"), usage + "\n");
    if (!stat.empty()) write(folder + "/memory.stat", stat);
  }
  static std::string folder(int node) {
    return "/sys/devices/system/node/node" + std::to_string(node);
  }
  void node(int number, int free_kB) const {
    write(folder(number) + "/meminfo",
          "Node " + std::to_string(number) + " MemFree: " + std::to_string(free_kB) + " kB\n");
  }
  MemoryLimit limit() const { return memory_limit(root_); }
};

TEST_F(FakeRoot, LimitsOfAncestorsApply) {
  write("/proc/self/cgroup", "0::/a/b/c\n");
  group("/sys/fs/cgroup/a/b/c", "max", "10");
  group("/sys/fs/cgroup/a/b", "9000", "10");
  group("/sys/fs/cgroup/a", "4000", "100");
  EXPECT_EQ(limit().available_B, 3900);
  EXPECT_EQ(limit().source, "cgroup limit of /sys/fs/cgroup/a");
  group("/sys/fs/cgroup/a/b", "300", "100");
  EXPECT_EQ(limit().available_B, 200);
}

TEST_F(FakeRoot, FirstVersionIsFoundByItsController) {
  write("/proc/self/cgroup", "7:cpu,cpuacct:/x\n4:hugetlb,memory:/y/z\n3:memoryless:/w\n");
  group("/sys/fs/cgroup/memory/y/z", "9223372036854771712", "10");
  group("/sys/fs/cgroup/memory/y", "8000", "2000", "total_inactive_file 500\ninactive_file 7\n");
  group("/sys/fs/cgroup/memory/w", "1", "0");
  EXPECT_EQ(limit().available_B, 6500);
  EXPECT_EQ(limit().source, "cgroup limit of /sys/fs/cgroup/memory/y");
}

TEST_F(FakeRoot, AContainerSeesOnlyItsRoot) {
  // The path is relative to the host's root, the mounted folder is the container's.
  write("/proc/self/cgroup", "4:memory:/docker/123abc\n");
  group("/sys/fs/cgroup/memory", "6000", "1000");
  EXPECT_EQ(limit().available_B, 5000);
}

TEST_F(FakeRoot, UnknownMemoryIsANumberOfBytes) {
  EXPECT_EQ(limit().source, "nothing");
  EXPECT_EQ(limit().available_B, std::int64_t{1} << 60);
  // The value of version 1 without a limit.
  write("/proc/self/cgroup", "4:memory:/\n");
  group("/sys/fs/cgroup/memory", "9223372036854771712", "10");
  EXPECT_EQ(limit().source, "nothing");
}

TEST_F(FakeRoot, TheCommitLimitAppliesWithoutOvercommitment) {
  write("/proc/meminfo", "MemAvailable: 900 kB\nCommitLimit: 100 kB\nCommitted_AS: 30 kB\n");
  for (const char* mode : {"0\n", "1\n"}) {
    write("/proc/sys/vm/overcommit_memory", mode);
    EXPECT_EQ(limit().source, "available memory");
  }
  write("/proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(limit().available_B, 70 * 1024);
  EXPECT_EQ(limit().source, "commit limit (vm.overcommit_memory=2)");
  write("/proc/meminfo", "MemAvailable: 900 kB\n");
  EXPECT_EQ(limit().source, "available memory");
}

TEST_F(FakeRoot, AFullControlGroupRefusesThreads) {
  write("/proc/self/cgroup", "5:pids:/a\n0::/b/c\n");
  write("/sys/fs/cgroup/pids/a/pids.max", "max\n");
  write("/sys/fs/cgroup/pids/a/pids.current", "7\n");
  write("/sys/fs/cgroup/b/pids.max", "8\n");
  write("/sys/fs/cgroup/b/pids.current", "7\n");
  EXPECT_FALSE(contains(thread_limit(root_), "control group"));
  write("/sys/fs/cgroup/b/pids.current", "8\n");
  EXPECT_TRUE(contains(thread_limit(root_), "/sys/fs/cgroup/b permits 8 processes and threads"));
  write("/sys/fs/cgroup/pids/a/pids.max", "7\n");
  EXPECT_TRUE(contains(thread_limit(root_), "/sys/fs/cgroup/pids/a permits 7"));
}

TEST_F(FakeRoot, BothVersionsSideBySide) {
  write("/proc/self/cgroup", "4:memory:/a\n0::/b\n");
  group("/sys/fs/cgroup/memory/a", "6000", "1000");
  group("/sys/fs/cgroup/unified/b", "3000", "1000");
  EXPECT_EQ(limit().available_B, 2000);
  group("/sys/fs/cgroup/memory/a", "1500", "1000");
  EXPECT_EQ(limit().available_B, 500);
}

TEST_F(FakeRoot, ANodeHasItsFreeMemoryAndPageCache) {
  node(0, 4000);
  write(folder(1) + "/meminfo",
        "\nNode 1 MemTotal:       64000 kB\nNode 1 MemFree:        100 kB\n"
        "Node 1 Active(file):     20 kB\nNode 1 Inactive(file):    3 kB\n"
        "Node 1 SReclaimable:      1 kB\n");
  EXPECT_EQ(node_limit({1}, false, root_).available_B, 124 * 1024);
  EXPECT_EQ(node_limit({1}, false, root_).source, "free memory of NUMA node 1");
  EXPECT_EQ(node_limit({0, 1}, false, root_).available_B, 4124 * 1024);
  // Interleaved pages fill the smallest node first.
  const MemoryLimit evenly = node_limit({0, 1}, true, root_);
  EXPECT_EQ(evenly.available_B, 2 * 124 * 1024);
  EXPECT_TRUE(contains(evenly.source, "free memory of NUMA node 1, which gets 1/2"));
  EXPECT_EQ(node_limit({0, 7}, false, root_).available_B, std::int64_t{1} << 60);
  EXPECT_EQ(node_limit({}, true, root_).available_B, std::int64_t{1} << 60);
}

TEST_F(FakeRoot, ACpusetBindsToTheMemoryOfItsNodes) {
  write("/proc/meminfo", "MemAvailable: 9000 kB\n");
  for (const int k : {0, 1, 2}) node(k, 1000 * (k + 1));
  // The kernel lists nodes that a machine does not have.
  write("/proc/self/status", "Name: a\nMems_allowed:\tff\nMems_allowed_list:\t0-7\n");
  EXPECT_EQ(bound_nodes(root_), std::vector<int>());
  EXPECT_EQ(limit().source, "available memory");
  write("/proc/self/status", "Name: a\nMems_allowed_list:\t0,2\n");
  EXPECT_EQ(bound_nodes(root_), (std::vector<int>{0, 2}));
  EXPECT_EQ(limit().available_B, 4000 * 1024);
  EXPECT_EQ(limit().source, "free memory of NUMA nodes 0,2");
}

TEST_F(FakeRoot, HugePagesAreInThePoolsOfNodes) {
  constexpr std::int64_t kPage_B = std::int64_t{2} << 20;
  const std::string pool = "/hugepages/hugepages-2048kB/free_hugepages";
  write(folder(0) + pool, "5\n");
  write(folder(1) + pool, "0\n");
  EXPECT_EQ(huge_page_limit({0, 1}, false, kPage_B, root_).available_B, 5 * kPage_B);
  EXPECT_EQ(huge_page_limit({1}, false, kPage_B, root_).available_B, 0);
  EXPECT_EQ(huge_page_limit({1}, false, kPage_B, root_).source, "the pool of NUMA node 1");
  EXPECT_EQ(huge_page_limit({0, 1}, true, kPage_B, root_).available_B, 0);
  write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "9\n");
  EXPECT_EQ(huge_page_limit({1}, false, kPage_B, root_).available_B, std::int64_t{1} << 60);
}

TEST_F(FakeRoot, SharedMemoryIsThatOfItsFileSystem) {
  EXPECT_EQ(shared_memory_limit(root_).source, root_);
  EXPECT_LT(shared_memory_limit(root_).available_B, std::int64_t{1} << 60);
  EXPECT_EQ(shared_memory_limit(root_ + "/absent").available_B, std::int64_t{1} << 60);
}

TEST_F(FakeRoot, MalformedFilesAreNoLimit) {
  write("/proc/meminfo", "MemAvailable: much kB\n");
  write("/proc/self/cgroup", "nonsense\n0::\n::\n1:memory\n");
  group("/sys/fs/cgroup", "99999999999999999999999", "some");
  EXPECT_EQ(limit().source, "nothing");
}

TEST(Arithmetic, RefusesOverflows) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_add(kMax - 1, 1, "a sum"), kMax);
  EXPECT_EQ(checked_mul(kMax / 2, 2, "a product"), kMax - 1);
  EXPECT_EQ(checked_mul(-3, 5, "a product"), -15);
  EXPECT_TRUE(is_refused([] { checked_add(kMax, 1, "a sum"); }, "a sum does not"));
  EXPECT_TRUE(is_refused([] { checked_add(-kMax, -2, "a sum"); }, "a sum"));
  EXPECT_TRUE(is_refused([] { checked_mul(kMax, 2, "it"); }, "it does not fit"));
  EXPECT_EQ(round_up(1, 4096), 4096);
  EXPECT_EQ(round_up(4096, 4096), 4096);
  EXPECT_EQ(round_up(0, 4096), 0);
  EXPECT_TRUE(is_refused([] { round_up(kMax - 4094, 4096); }, "a buffer size"));
}

}  // namespace
}  // namespace memkern
