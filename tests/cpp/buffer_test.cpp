// Memory is allocated as requested, or refused before any of it is touched.
#include "core/buffer.hpp"

#include <linux/mempolicy.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <regex>

#include "core/topology.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  file >> value;
  return file ? value : 0;
}

std::int64_t page_B() { return sysconf(_SC_PAGESIZE); }

bool all_zero(const Buffer& buffer) {
  for (std::int64_t i = 0; i < buffer.capacity(); ++i) {
    if (buffer.data()[i] != std::byte{0}) return false;
  }
  return true;
}

// The range of small arrays that contains this address.
std::uintptr_t range(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data) / static_cast<std::uintptr_t>(kMiB);
}

// A case with one array.
struct OneArray : Arena {
  OneArray(const Team& team, const Placement& placement, std::int64_t bytes, std::int64_t rows = 1,
           const std::vector<std::int64_t>& boundaries_B = {}, bool pooled = true)
      : Arena(team, placement) {
    request(bytes, rows, boundaries_B, pooled);
    commit();
  }
  std::byte* data() const { return (*this)[0].data(); }
};

class BufferTest : public ::testing::Test {
 protected:
  BufferTest() { Arena::release_pool(); }
};

using BufferDeathTest = BufferTest;

TEST_F(BufferDeathTest, PagesOnBothSidesFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const std::int64_t bytes : {std::int64_t{1}, 3 * page_B(), 5 * kMiB}) {
    const Buffer buffer(bytes, Placement{});
    volatile std::byte* data = buffer.data();
    data[0] = std::byte{1};
    data[buffer.capacity() - 1] = std::byte{2};
    EXPECT_DEATH(data[-1] = std::byte{1}, "");
    EXPECT_DEATH(data[buffer.capacity()] = std::byte{1}, "");
  }
}

TEST_F(BufferDeathTest, RespectsTheAddressSpaceLimit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto limited = [] {
    const Team& team = team_of(1);
    const std::int64_t limit = status_B("VmSize") + 256 * kMiB;
    const rlimit rule{static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
    if (setrlimit(RLIMIT_AS, &rule) != 0) std::exit(3);
    const std::int64_t before = status_B("VmSize");
    Arena arena(team, Placement{});
    arena.request(1024 * kMiB, 1);
    try {
      arena.commit();
    } catch (const MemoryError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(status_B("VmSize") - before < kMiB ? 0 : 4);
    }
    std::exit(5);
  };
  EXPECT_EXIT(limited(), ::testing::ExitedWithCode(0), "address space limit");
}

TEST_F(BufferTest, IsAlignedAndZero) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, page_B() + 1, 3 * kMiB}) {
    const Buffer buffer(bytes, Placement{});
    EXPECT_GE(buffer.capacity(), bytes);
    const std::int64_t align = bytes >= 2 * kMiB ? 2 * kMiB : page_B();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % static_cast<std::uintptr_t>(align),
              0U);
    EXPECT_EQ(buffer.capacity() % align, 0);
    EXPECT_TRUE(all_zero(buffer));
  }
}

TEST_F(BufferTest, PopulateTouchesOnlyTheGivenRange) {
  const Buffer buffer(64 * kMiB, {Pages::Base4k, {}});
  const std::int64_t before = status_B("VmRSS");
  EXPECT_TRUE(buffer.populate(8 * kMiB, 40 * kMiB));
  const std::int64_t grown = status_B("VmRSS") - before;
  EXPECT_GE(grown, 31 * kMiB);
  EXPECT_LE(grown, 36 * kMiB);
  EXPECT_TRUE(buffer.populate(5, 5));
  EXPECT_TRUE(buffer.populate(buffer.capacity() - 1, buffer.capacity()));
  EXPECT_TRUE(all_zero(buffer));
}

TEST_F(BufferTest, RefusesASizeThatOverflows) {
  EXPECT_TRUE(is_refused([] { Buffer(kMax - 5, Placement{}); }, "a buffer size"));
  EXPECT_TRUE(is_refused<MemoryError>([] { Buffer(kMax / 2, Placement{}); }, "no address space"));
}

TEST_F(BufferTest, SmallPagesStaySmall) {
  if (page_B() != 4096) {
    EXPECT_TRUE(is_refused([] { Buffer(1, {Pages::Base4k, {}}); }, "base page"));
    return;
  }
  EXPECT_EQ(OneArray(team_of(2), {Pages::Base4k, {}}, 8 * kMiB).obtained_pages(), "4k");
}

TEST_F(BufferTest, PagesAreOnTheNodesOfTheirWorkers) {
  const Team team({2, "compact"});
  for (const std::int64_t rows : {1, 2}) {
    Arena arena(team, Placement{});
    arena.request(8 * kMiB, rows);
    arena.request(1, 1);
    arena.commit();
    EXPECT_FALSE(arena.misplaced_share() > 0.0);  // NaN where the system does not tell it
  }
  EXPECT_TRUE(std::isnan(OneArray(team_of(2), {}, kMiB).misplaced_share()));
}

TEST_F(BufferTest, ReportsTheDefaultPages) {
  const std::string pages = OneArray(team_of(2), {}, 8 * kMiB).obtained_pages();
  EXPECT_TRUE(std::regex_match(pages, std::regex("[0-9]+k|thp(:0\\.[0-9]+)?"))) << pages;
}

TEST_F(BufferTest, TransparentHugePagesAreObtainedOrRefused) {
  Arena arena(team_of(2), {Pages::Thp, {}});
  const std::size_t slot = arena.request(7 * kMiB, 1);
  try {
    arena.commit();
  } catch (const MemoryError& error) {
    EXPECT_TRUE(contains(error.what(), "pages 'thp' are not available: the kernel provided "));
    return;
  }
  EXPECT_EQ(arena.obtained_pages(), "thp");
  EXPECT_EQ(arena[slot].capacity(), 8 * kMiB);
}

class HugetlbTest : public BufferTest, public ::testing::WithParamInterface<Pages> {
 protected:
  std::int64_t size_B() const { return GetParam() == Pages::Huge2m ? 2 * kMiB : 1024 * kMiB; }
  std::string pool() const {
    return "/sys/kernel/mm/hugepages/hugepages-" + std::to_string(size_B() / 1024) + "kB/";
  }
  std::int64_t available_pages() const {
    return number_in(pool() + "free_hugepages") - number_in(pool() + "resv_hugepages") +
           number_in(pool() + "nr_overcommit_hugepages");
  }
  const char* name() const { return GetParam() == Pages::Huge2m ? "hugetlb-2m" : "hugetlb-1g"; }
};

TEST_P(HugetlbTest, IsObtainedWhileThePoolLasts) {
  Arena arena(team_of(2), {GetParam(), {}});
  arena.request(size_B(), 1);
  if (available_pages() < 1) {
    EXPECT_TRUE(is_refused<MemoryError>([&] { arena.commit(); }, "are not available"));
    EXPECT_EQ(arena.obtained_pages(), "none");
    return;
  }
  arena.commit();
  EXPECT_EQ(arena.obtained_pages(), name());
  EXPECT_EQ(arena[0].capacity(), size_B());
  arena[0].data()[size_B() - 1] = std::byte{7};
}

TEST_P(HugetlbTest, IsRefusedBeyondThePool) {
  Arena arena(team_of(1), {GetParam(), {}});
  arena.request((available_pages() + 1) * size_B(), 1);
  const std::string message = refusal<MemoryError>([&] { arena.commit(); });
  EXPECT_TRUE(contains(message, std::string("pages '") + name() + "' are not available"));
  EXPECT_TRUE(contains(message, "pool"));
}

INSTANTIATE_TEST_SUITE_P(All, HugetlbTest, ::testing::Values(Pages::Huge2m, Pages::Huge1g),
                         [](const auto& tried) {
                           return tried.param == Pages::Huge2m ? "TwoMiB" : "OneGiB";
                         });

TEST_F(BufferTest, NumaPoliciesAreApplied) {
  struct Policy {
    int kind = -1;
    std::array<std::uint64_t, 16> nodes{};  // a bit for each node
  };
  const auto obtained = [&](const std::string& text) {
    const OneArray array(team_of(2), {Pages::Default, parse_numa(text)}, kMiB);
    Policy found;
    EXPECT_EQ(syscall(SYS_get_mempolicy, &found.kind, found.nodes.data(), 16UL * 64, array.data(),
                      std::uint64_t{MPOL_F_ADDR}),
              0);
    return found;
  };
  EXPECT_EQ(obtained("first-touch").kind, int{MPOL_DEFAULT});
  EXPECT_EQ(obtained("interleave").kind, int{MPOL_INTERLEAVE});
  for (const int node : Topology::instance().numa_nodes()) {
    Policy wanted;
    wanted.nodes[static_cast<std::size_t>(node / 64)] = std::uint64_t{1} << (node % 64);
    const Policy found = obtained("node:" + std::to_string(node));
    EXPECT_NE(found.kind, int{MPOL_DEFAULT});
    EXPECT_EQ(found.nodes, wanted.nodes);
  }
}

TEST_F(BufferTest, ParsesOptions) {
  EXPECT_EQ(parse_pages("default"), Pages::Default);
  EXPECT_EQ(parse_pages("4k"), Pages::Base4k);
  EXPECT_EQ(parse_pages("thp"), Pages::Thp);
  EXPECT_EQ(parse_pages("hugetlb-2m"), Pages::Huge2m);
  EXPECT_EQ(parse_pages("hugetlb-1g"), Pages::Huge1g);
  EXPECT_TRUE(is_refused([] { parse_pages("2m"); }, "'2m'"));
  for (const char* bad : {"", "node", "node:", "node:x", "node:-1", "node:9999", "node:0x"}) {
    EXPECT_TRUE(is_refused([&] { parse_numa(bad); }, std::string(bad)));
  }
}

TEST_F(BufferTest, RefusesAllRequestsBeforeAnyIsTouched) {
  const std::int64_t space = status_B("VmSize");
  const std::int64_t resident = status_B("VmRSS");
  Arena arena(team_of(2), Placement{});
  arena.request(256 * kMiB, 1);
  arena.request(std::int64_t{1} << 50, 1);
  const std::string message = refusal<MemoryError>([&] { arena.commit(); });
  EXPECT_TRUE(contains(message, "this case needs 1125900.175 GB but "));
  EXPECT_TRUE(contains(message, "use smaller sizes"));
  EXPECT_LT(status_B("VmSize") - space, 64 * kMiB);
  EXPECT_LT(status_B("VmRSS") - resident, 64 * kMiB);
}

TEST_F(BufferTest, TheSumOfRequestsMustFit64Bits) {
  Arena arena(team_of(1), Placement{});
  arena.request(kMax, 1);
  arena.request(kMax, 1);
  EXPECT_TRUE(is_refused([&] { arena.commit(); }, "the memory of this case"));
}

class PoolTest : public BufferTest {
 protected:
  // Address of the memory that a case of this kind gets; released at once.
  static const std::byte* address_of(const Team& team, const Placement& placement,
                                     std::int64_t bytes, std::int64_t rows = 1) {
    return OneArray(team, placement, bytes, rows).data();
  }
};

TEST_F(BufferTest, TouchesAllPartsOfAPartition) {
  const std::int64_t bytes = 32 * kMiB;
  const std::int64_t odd = 5 * kMiB + 123;
  // Empty parts and parts that begin within a page.
  for (const std::vector<std::int64_t>& boundaries :
       {std::vector<std::int64_t>{0, odd, 2 * odd, bytes}, {0, 0, bytes, bytes}, {0, bytes}}) {
    Arena::release_pool();
    const std::int64_t before = status_B("VmRSS");
    const OneArray array(team_of(3), {Pages::Base4k, {}}, bytes, 1, boundaries);
    EXPECT_GE(status_B("VmRSS") - before, bytes - kMiB);
    EXPECT_GE(array[0].capacity(), bytes);
    EXPECT_TRUE(all_zero(array[0]));
  }
}

TEST_F(PoolTest, ReusesMemoryForAnyPartition) {
  if (Topology::instance().numa_nodes().size() > 1)
    GTEST_SKIP() << "the placement matters with several NUMA nodes";
  const std::byte* first = address_of(team_of(2), Placement{}, 4 * kMiB);
  for (const std::int64_t cut : {std::int64_t{0}, kMiB, 4 * kMiB}) {
    EXPECT_EQ(OneArray(team_of(2), {}, 4 * kMiB, 1, {0, cut, 4 * kMiB}).data(), first);
  }
}

TEST_F(PoolTest, AllocatesMemoryForOtherKindsOfCases) {
  const std::byte* first = address_of(team_of(2), Placement{}, 4 * kMiB);
  EXPECT_NE(address_of(team_of(1), Placement{}, 4 * kMiB), first);
  EXPECT_NE(address_of(team_of(2), Placement{}, 4 * kMiB, 2), first);
  EXPECT_NE(address_of(team_of(2), {Pages::Default, parse_numa("interleave")}, 4 * kMiB), first);
  if (page_B() == 4096) {
    EXPECT_NE(address_of(team_of(2), {Pages::Base4k, {}}, 4 * kMiB), first);
  }
  EXPECT_EQ(address_of(team_of(2), Placement{}, 4 * kMiB), first);
  if (Topology::instance().numa_nodes().size() == 1) {
    EXPECT_EQ(address_of(team_of(2), Placement{}, 3 * kMiB), first);
  }
}

TEST_F(PoolTest, FreesABufferThatIsTooSmall) {
  address_of(team_of(1), Placement{}, 64 * kMiB);
  const std::int64_t before = status_B("VmSize");
  address_of(team_of(1), Placement{}, 80 * kMiB);
  EXPECT_LT(status_B("VmSize") - before, 32 * kMiB);
}

TEST_F(PoolTest, NeitherGivesNorKeepsMemoryThatIsNotPooled) {
  const std::byte* pooled = address_of(team_of(1), Placement{}, 4 * kMiB);
  {
    const OneArray array(team_of(1), {}, 4 * kMiB, 1, {}, false);
    EXPECT_NE(array.data(), pooled);
    EXPECT_TRUE(all_zero(array[0]));
    array.data()[0] = std::byte{1};
  }
  EXPECT_EQ(address_of(team_of(1), Placement{}, 4 * kMiB), pooled);
  // A new mapping may have the address of the last one, but not its contents.
  EXPECT_TRUE(all_zero(OneArray(team_of(1), {}, 4 * kMiB, 1, {}, false)[0]));
}

TEST_F(PoolTest, GivesSmallArraysAddressesWithinOneRange) {
  // Also after large arrays, and after enough small arrays to fill the range.
  for (const std::int64_t before : {0, 1, 64}) {
    for (std::int64_t k = 0; k < before; ++k)
      address_of(team_of(1), Placement{}, kMiB / 4 >> k % 2, 2);
    address_of(team_of(1), Placement{}, 8 * kMiB);
    Arena arena(team_of(1), Placement{});
    const std::size_t a = arena.request(8192, 1);
    const std::size_t b = arena.request(kMiB / 4, 1);
    const std::size_t c = arena.request(1, 1);
    const std::size_t large = arena.request(kMiB / 4 + 1, 1);
    arena.commit();
    EXPECT_EQ(range(arena[a].data()), range(arena[b].data() + kMiB / 4 - 1));
    EXPECT_EQ(range(arena[a].data()), range(arena[c].data()));
    EXPECT_NE(range(arena[a].data()), range(arena[large].data()));
  }
}

TEST_F(PoolTest, GivesSmallArraysThisRangeOnADescribedMachineWithLargePages) {
  const OneArray before(team_of(1), {}, kMiB / 4);
  MachineDescription machine;
  machine.topology = "core:2 pu:1";
  machine.page_B = 65536;
  Topology::describe(machine);
  {
    const OneArray during(team_of(1), {}, 8192);
    EXPECT_EQ(range(during.data()), range(before.data()));
    EXPECT_NE(during.data(), before.data());
  }
  Arena::release_pool();
  Topology::describe({});
}

TEST_F(PoolTest, GivesSmallArraysOtherAddressesIfTheRangeIsFull) {
  Arena arena(team_of(1), Placement{});
  std::vector<std::size_t> slots;
  for (int k = 0; k < 9; ++k) slots.push_back(arena.request(kMiB / 8, 1));
  arena.commit();
  for (const std::size_t slot : slots) {
    EXPECT_TRUE(all_zero(arena[slot]));
    arena[slot].data()[0] = std::byte{1};
  }
}

TEST_F(PoolTest, GivesACaseThePagesThatItWouldGetAsTheFirst) {
  const std::byte* large = address_of(team_of(1), Placement{}, 4 * kMiB);
  EXPECT_NE(address_of(team_of(1), Placement{}, kMiB), large);
}

TEST_F(PoolTest, CanBeEmptied) {
  const std::int64_t before = status_B("VmSize");
  address_of(team_of(1), Placement{}, 64 * kMiB);
  EXPECT_GE(status_B("VmSize") - before, 64 * kMiB);
  Arena::release_pool();
  EXPECT_LT(status_B("VmSize") - before, 32 * kMiB);
}

TEST_F(PoolTest, GivesLaterBuffersOtherPages) {
  const std::int64_t before = status_B("VmRSS");
  for (int k = 0; k < 200; ++k) {
    address_of(team_of(1), Placement{}, 2 * kMiB);
    Arena::release_pool(64 * kMiB);
    // The pages of the last buffers stay in use, but not those of all 400 MiB; a sanitizer needs
    // memory as well.
    EXPECT_GE(status_B("VmRSS") - before, std::min(2 * k, 120) * kMiB);
    EXPECT_LE(status_B("VmRSS") - before, 256 * kMiB);
  }
  Arena::release_pool();
  EXPECT_LE(status_B("VmRSS") - before, 64 * kMiB);
}

TEST_F(PoolTest, KeepsAtMostHalfOfWhatItLeavesToOthers) {
  testing::FakeDevice device;
  Placement placement;
  placement.device = &device;
  device.free = 4096 * kMiB;
  address_of(team_of(1), placement, 1024 * kMiB, 1);
  address_of(team_of(1), placement, 8 * kMiB, 2);
  EXPECT_EQ(device.allocated, 2);
  device.free = 2048 * kMiB;
  address_of(team_of(1), placement, 8 * kMiB, 3);
  EXPECT_EQ(device.allocated, 1);
  Arena::release_pool();
  EXPECT_EQ(device.allocated, 0);
}

}  // namespace
}  // namespace memkern
