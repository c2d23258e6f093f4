// Sizes of pages: settings and limits of fake trees of the kernel's files, and what is read back.
#include "core/pages.hpp"

#include "support.hpp"

namespace memkern {
namespace {

using testing::contains;

const std::string kThp = "/sys/kernel/mm/transparent_hugepage/";
const std::string kPool = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kPage_B = 2048 * kKiB;

class PageFiles : public testing::FakeRoot {
 protected:
  void every(const std::string& words) const { write(kThp + "enabled", words); }
  void of_size(int kB, const std::string& words) const {
    write(kThp + "hugepages-" + std::to_string(kB) + "kB/enabled", words);
  }
  void pool(int free, int reserved, int overcommit, int surplus) const {
    write(kPool + "free_hugepages", std::to_string(free));
    write(kPool + "resv_hugepages", std::to_string(reserved));
    write(kPool + "nr_overcommit_hugepages", std::to_string(overcommit));
    write(kPool + "surplus_hugepages", std::to_string(surplus));
  }
  std::string limit(int pages) const { return hugetlb_limit(kPage_B, pages * kPage_B, root_); }
};

TEST_F(PageFiles, EachSizeHasItsSetting) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(permitted_folios_B(true, root_), Sizes());
  of_size(16, "[always] inherit madvise never");
  of_size(32, "always inherit [madvise] never");
  of_size(64, "always inherit madvise [never]");
  of_size(2048, "always [inherit] madvise never");
  every("always madvise [never]");
  EXPECT_EQ(permitted_folios_B(false, root_), (Sizes{16 * kKiB}));
  EXPECT_EQ(permitted_folios_B(true, root_), (Sizes{16 * kKiB, 32 * kKiB}));
  every("always [madvise] never");
  EXPECT_EQ(permitted_folios_B(false, root_), (Sizes{16 * kKiB}));
  EXPECT_EQ(permitted_folios_B(true, root_), (Sizes{16 * kKiB, 32 * kKiB, 2048 * kKiB}));
  every("[always] madvise never");
  EXPECT_EQ(permitted_folios_B(false, root_), (Sizes{16 * kKiB, 2048 * kKiB}));
}

TEST_F(PageFiles, TheSettingThatForbidsHugePagesIsNamed) {
  EXPECT_TRUE(contains(why_no_thp(root_), "this kernel has no transparent huge pages"));
  every("always madvise [never]");
  EXPECT_TRUE(contains(why_no_thp(root_), kThp + "enabled is never: as root, echo madvise > "));
  of_size(2048, "always [inherit] madvise never");
  EXPECT_TRUE(contains(why_no_thp(root_), kThp + "enabled is never"));
  every("[always] madvise never");
  EXPECT_TRUE(contains(why_no_thp(root_), "no memory is free in blocks of 2048 kB"));
  of_size(2048, "always inherit madvise [never]");
  EXPECT_TRUE(contains(why_no_thp(root_), kThp + "hugepages-2048kB/enabled is never"));
  // A kernel whose base pages have 64 KiB.
  write(kThp + "hpage_pmd_size", "536870912\n");
  EXPECT_TRUE(contains(why_no_thp(root_), "in blocks of 524288 kB"));
  write("/proc/self/status", "Name:\tx\nTHP_enabled:\t0\n");
  EXPECT_TRUE(contains(why_no_thp(root_), "PR_SET_THP_DISABLE"));
}

TEST_F(PageFiles, ThePoolRefusesMoreThanItHas) {
  EXPECT_TRUE(contains(limit(1), "no pool of pages of this size"));
  pool(4, 1, 0, 0);
  EXPECT_EQ(limit(3), "");
  EXPECT_TRUE(contains(limit(4), "the system's pool has 3 free, and 4 needed"));
  pool(4, 1, 2, 1);
  EXPECT_EQ(limit(4), "");
  EXPECT_TRUE(contains(limit(5), "has 4 free, and 5 needed"));
}

TEST_F(PageFiles, ControlGroupsLimitThePool) {
  pool(100, 0, 0, 0);
  write("/proc/self/cgroup", "4:hugetlb:/a\n0::/b/c\n");
  const std::string second = "/sys/fs/cgroup/b/hugetlb.2MB.";
  write(second + "max", "max\n");
  write(second + "rsvd.max", std::to_string(8 * kPage_B));
  write(second + "rsvd.current", std::to_string(3 * kPage_B));
  EXPECT_EQ(limit(5), "");
  EXPECT_TRUE(
      contains(limit(6), "/sys/fs/cgroup/b leaves 5 free, and 6 needed (hugetlb.2MB.rsvd.max)"));
  write(second + "max", std::to_string(2 * kPage_B));
  EXPECT_TRUE(contains(limit(6), "leaves 2 free, and 6 needed (hugetlb.2MB.max)"));
  write("/sys/fs/cgroup/hugetlb/a/hugetlb.2MB.limit_in_bytes", "0\n");
  EXPECT_TRUE(contains(limit(1), "/sys/fs/cgroup/hugetlb/a leaves 0"));
  EXPECT_TRUE(contains(limit(1), "(hugetlb.2MB.limit_in_bytes)"));
}

TEST(ReadPages, NamesTheSmallestPagesOrARange) {
  const Buffer buffer(64 * kKiB, Placement{});
  buffer.populate(0, buffer.capacity());
  const std::string name = buffer.obtained_pages();
  EXPECT_EQ(name.back(), 'k');
  EXPECT_EQ(name.find("thp"), std::string::npos);
}

}  // namespace
}  // namespace memkern
