// Conditions of samples, on any machine.
#include "core/monitor.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/exchange.hpp"
#include "core/topology.hpp"
#include "support.hpp"

namespace memkern {
namespace {

// A root without /proc, so that run-queue delays are unknown.
const std::string kNowhere = "/nowhere";

void compute(double seconds) {
  for (const double end = now() + seconds; now() < end;) {
  }
}

// Conditions of samples in which the calling thread and the other workers compute.
std::vector<Conditions> conditions_of(const Team& team, int samples, double seconds,
                                      const std::string& root = "") {
  std::vector<Conditions> all(static_cast<std::size_t>(samples));
  const Team::Session session(team);
  Monitor monitor(team, root);
  monitor.start();
  for (Conditions& conditions : all) {
    parallel_parts(team, team.size(), team.size(), [&](Range, int) { compute(seconds); });
    monitor.sample_ended(conditions);
  }
  monitor.finish();
  return all;
}

TEST(Monitor, KnowsTheConditionsOfEverySample) {
  for (const int threads : {1, 2}) {
    const Team team({threads, "auto"});
    for (const double seconds : {1e-6, 1e-4, 5e-3}) {
      for (const Conditions& c : conditions_of(team, 20, seconds)) {
        EXPECT_GE(c.cpu_share, 0.0);
        EXPECT_LE(c.cpu_share, 1.0);
        EXPECT_EQ(c.moved, 0.0);
        EXPECT_GE(c.waited_share, 0.0);
        EXPECT_LE(c.waited_share, 1.0 - c.cpu_share + 1e-9);
        // It is unknown if a worker slept.
        EXPECT_FALSE(c.absent_share < 0.0 || c.absent_share > 1.0);
        EXPECT_GT(c.throughput, 0.0);
        if (threads == 1) {
          EXPECT_TRUE(std::isnan(c.exchange_s));
          EXPECT_TRUE(std::isnan(c.exchange_least_s));
        }
        if (threads == 2 && std::ssize(Topology::instance().allowed_units()) > 1) {
          EXPECT_GT(c.exchange_least_s, 1e-9);
          EXPECT_GE(c.exchange_s, c.exchange_least_s);
        }
#if defined(__x86_64__) || defined(__aarch64__)
        EXPECT_GT(c.clock_Hz, 0.1e9);
        EXPECT_LT(c.clock_Hz, 20e9);
        EXPECT_GT(c.memory_s, 2e-8);
        EXPECT_LT(c.memory_s, 1.0);
#endif
      }
    }
  }
}

TEST(Exchange, IsKnownIfEveryWorkerHasItsUnit) {
  const auto units = static_cast<int>(Topology::instance().allowed_units().size());
  for (const int threads : {1, 2, units, units + 1}) {
    const Team team({threads, "auto"});
    const Team::Session session(team);
    const double exchange_s = measure_exchange(team);
    if (threads == 1 || threads > units) {
      EXPECT_TRUE(std::isnan(exchange_s)) << threads;
    } else {
      EXPECT_GT(exchange_s, 1e-9);
      EXPECT_LT(exchange_s, 1.0);
    }
  }
}

TEST(Exchange, IsMeasuredForEachPairOfNeighbours) {
  // More workers than units take turns on them.
  for (const int threads : {1, 2, 3, 4, 5}) {
    const Team team({threads, "none"});
    const Team::Session session(team);
    const std::vector<double> seconds = exchange_times(team);
    ASSERT_EQ(std::ssize(seconds), threads - 1);
    for (const double each_s : seconds) {
      EXPECT_GT(each_s, 1e-9);
      EXPECT_LT(each_s, 1.0);
    }
  }
}

TEST(Monitor, SeesAnotherThreadOnTheSameUnit) {
  const int unit = Topology::instance().allowed_units().front();
  const pid_t competitor = fork();
  if (competitor == 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(unit), &set);
    sched_setaffinity(0, sizeof set, &set);
    for (;;) compute(1.0);
  }
  const Team team({1, std::to_string(unit)});
  // Longer than a time slice of the scheduler: each of these samples loses its processor.
  std::vector<double> least;
  double waited = 0.0;
  for (const std::string& root : {std::string(), kNowhere}) {
    least.push_back(1.0);
    for (const Conditions& c : conditions_of(team, 5, 0.1, root)) {
      least.back() = std::min(least.back(), c.cpu_share);
      if (root.empty()) waited = std::max(waited, c.waited_share);
      EXPECT_TRUE(root.empty() || (std::isnan(c.waited_share) && std::isnan(c.absent_share)));
    }
  }
  kill(competitor, SIGKILL);
  waitpid(competitor, nullptr, 0);
  EXPECT_LT(least[0], 0.9);
  EXPECT_GT(waited, 0.1) << "the system knows that it waited";
  EXPECT_LT(least[1], 0.9) << "without run-queue delays";
}

using RunQueue = testing::FakeRoot;

TEST_F(RunQueue, DelaysAreKnownIfTheSystemCountsThem) {
  EXPECT_FALSE(run_queue_delays_known(kNowhere));
  // Kernels that do not count run-queue delays report zeros.
  for (const auto& [text, known] :
       {std::pair{"900 70 3\n", true}, {"0 0 0\n", false}, {"", false}}) {
    write("/proc/self/task/" + std::to_string(gettid()) + "/schedstat", text);
    EXPECT_EQ(run_queue_delays_known(root_), known) << text;
  }
}

TEST(Monitor, SeesAWorkerThatMoves) {
  const auto& units = Topology::instance().allowed_units();
  if (units.size() < 2) GTEST_SKIP() << "there is one processing unit";
  const auto run_on = [](int unit) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(unit), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
  };
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const Team team({1, "none"});
  const Team::Session session(team);
  run_on(units[0]);
  Monitor monitor(team);
  monitor.start();
  std::vector<Conditions> all(3);
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (k == 1) run_on(units[1]);
    compute(1e-3);  // longer than the interval at which workers are observed
    monitor.sample_ended(all[k]);
  }
  monitor.finish();
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(all[0].moved, 0.0);
  EXPECT_EQ(all[1].moved, 1.0);
  EXPECT_EQ(all[2].moved, 0.0);
}

}  // namespace
}  // namespace memkern
