// Cases as the Python module requests them: variants, samples and errors.
#include "engine/prepared.hpp"

#include <chrono>
#include <thread>

#include "core/topology.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// With small caches, flushes and data beyond the caches are small, too.
const bool kDescribed = [] {
  MachineDescription machine;
  machine.topology = "l3:1(size=4MB) l2:2(size=512KB) l1d:1(size=32KB) core:1 pu:1";
  Topology::describe(machine);
  return true;
}();

Request copy(std::int64_t elements) {
  Request request;
  request.kernel = "stream.copy";
  request.threads = 2;
  request.inputs.integers = {{"elements", elements}, {"prefetch", 0}};
  return request;
}

TEST(Prepared, RunsEveryCandidateAndReportsIt) {
  constexpr std::int64_t kElements = 1001;
  Prepared prepared(copy(kElements));
  const auto candidates = prepared.runner().candidates();
  ASSERT_FALSE(candidates.empty());
  EXPECT_EQ(candidates.front().second, supported_isas().front());
  for (const auto& [variant, isa] : candidates) {
    prepared.problem().fill(true);
    prepared.select(variant, isa);
    EXPECT_GT(prepared.run(1), 0.0);
    const Obtained obtained = prepared.runner().obtained();
    EXPECT_EQ(obtained.variant, variant);
    EXPECT_EQ(obtained.isa, isa);
    EXPECT_EQ(obtained.threads, 2);
    EXPECT_EQ(obtained.block_threads, 0);
    for (std::int64_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(element(prepared, "c", i), element(prepared, "a", i))
          << variant << ' ' << isa << ' ' << i;
    }
  }
}

TEST(Prepared, RunsOnlyTheRange) {
  Prepared prepared(copy(100));
  prepared.problem().fill(true);
  const double before = element(prepared, "c", 39);
  EXPECT_GT(prepared.run_range(40, 60), 0.0);
  for (std::int64_t i = 40; i < 60; ++i)
    EXPECT_EQ(element(prepared, "c", i), element(prepared, "a", i));
  EXPECT_EQ(element(prepared, "c", 39), before);
  EXPECT_NE(element(prepared, "c", 60), element(prepared, "a", 60));
}

TEST(Prepared, FillsAgainWhatARunHasWritten) {
  Prepared prepared(copy(100));
  prepared.problem().fill(true);
  const double fresh = element(prepared, "c", 7);
  prepared.run(1);
  ASSERT_NE(element(prepared, "c", 7), fresh);
  prepared.problem().fill(true);
  EXPECT_EQ(element(prepared, "c", 7), fresh);
}

TEST(Prepared, RefusesUnknownValues) {
  const auto refused = [](const auto& change) {
    Request request = copy(100);
    change(request);
    return refusal<InputError>([&] { const Prepared prepared(request); });
  };
  EXPECT_TRUE(contains(refused([](Request& r) { r.unroll = 5; }), "is not built with unroll 5"));
  EXPECT_TRUE(
      contains(refused([](Request& r) { r.template_variant = "odd"; }), "is not built as 'odd'"));
  Prepared prepared(copy(100));
  EXPECT_TRUE(is_refused([&] { prepared.select("odd", "avx2"); }, "variant 'odd'"));
  EXPECT_TRUE(is_refused([&] { prepared.run(0); }, "at least 1"));
  EXPECT_TRUE(is_refused([&] { prepared.run_range(0, 101); }, "outside 0 to 100"));
  EXPECT_TRUE(is_refused([&] { prepared.run_range(5, 5); }, "is empty"));
}

double sampled(Prepared& prepared, int samples) {
  Prepared::Sampling sampling(prepared, 1, now() + 60.0);
  std::vector<Conditions> conditions(static_cast<std::size_t>(samples));
  double least = 1.0;
  for (Conditions& c : conditions) {
    double seconds = 0.0;
    EXPECT_TRUE(sampling.sample(seconds, {}, c));
    least = std::min(least, seconds);
  }
  sampling.finish();
  return least;
}

TEST(Prepared, WarmsUpTheCachesBeforeTheFirstSample) {
  Prepared prepared(copy(1000));
  EXPECT_EQ(prepared.untimed(), 0);
  std::int64_t before = 0;
  for (const int pause_ms : {0, 50}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    const double untimed_s = prepared.untimed_s();
    EXPECT_GT(sampled(prepared, 1), 0.0);
    // The warm-up has parts of 0.1 ms, until times stop decreasing.
    EXPECT_GE(prepared.untimed_s() - untimed_s, 3e-4);
    EXPECT_GT(prepared.untimed(), before);
    before = prepared.untimed();
  }
  // Other programs may have used the caches, even soon after samples.
  EXPECT_GT(sampled(prepared, 50), 0.0);
  EXPECT_GT(prepared.untimed(), before);
}

TEST(Prepared, WarmsUpForNoLongerThanItMaySample) {
  Prepared prepared(copy(1000));
  const double end_s = now() + 1e-3;
  Prepared::Sampling sampling(prepared, 1, end_s);
  Conditions conditions;
  double seconds = 0.0;
  EXPECT_TRUE(sampling.sample(seconds, {}, conditions));
  // The end is postponed by the time of the warm-up.
  EXPECT_NEAR(sampling.end() - end_s, prepared.untimed_s(), 1e-9);
  Prepared late(copy(1000));
  Prepared::Sampling none(late, 1, now() - 1.0);
  EXPECT_TRUE(none.sample(seconds, {}, conditions));
  EXPECT_EQ(late.untimed(), 0);
}

TEST(Prepared, DoesNotWarmUpCachesThatAreFlushedOrTooSmall) {
  Request flushed = copy(1000);
  flushed.flush = true;
  Prepared cold(flushed);
  EXPECT_GT(sampled(cold, 2), 0.0);
  EXPECT_EQ(cold.untimed(), 0);
  // The two arrays have more than twice the size of the last-level cache.
  Prepared large(copy(Topology::instance().last_level_cache_B() / 8 + 1000));
  EXPECT_GT(sampled(large, 2), 0.0);
  EXPECT_EQ(large.untimed(), 0);
  // Caches may be smaller than the system reports.
  Request small = copy(1000);
  small.caches_B = 1000;
  Prepared beyond(small);
  EXPECT_GT(sampled(beyond, 2), 0.0);
  EXPECT_EQ(beyond.untimed(), 0);
}

}  // namespace
}  // namespace memkern
