// Times of loads from caches and memory, on any machine.
#include "core/memory.hpp"

#include "support.hpp"

namespace memkern {
namespace {

using testing::is_refused;

TEST(MeasureLoads, TakesSizesAsLongAsThereIsTime) {
  // From a single line to 64.5 pages of 4 KiB.
  const std::vector<std::int64_t> sizes_B = {64, 4096, 1 << 16, (1 << 18) + 2048};
  const auto [seconds, memory_s] = measure_loads(sizes_B, 60.0);
  ASSERT_GE(seconds.size(), 1U);
  EXPECT_LE(seconds.size(), sizes_B.size());
  for (const double one_s : seconds) EXPECT_GT(one_s, 0.0);
  EXPECT_FALSE(memory_s <= 0.0);
  EXPECT_TRUE(measure_loads(sizes_B, 0.0).first.empty());
  EXPECT_TRUE(measure_loads({}, 1.0).first.empty());
}

TEST(MeasureLoads, RefusesSizesThatDoNotIncreaseFromALine) {
  for (const std::vector<std::int64_t>& sizes_B :
       {std::vector<std::int64_t>{0}, {63, 128}, {256, 128}, {-64}}) {
    EXPECT_TRUE(is_refused([&] { measure_loads(sizes_B, 1.0); }, "64 B"));
  }
}

}  // namespace
}  // namespace memkern
