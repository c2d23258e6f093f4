// Running threads of other processes and the choice of units, from fake /proc trees and the real
// one.
#include "core/load.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/topology.hpp"
#include "support.hpp"

namespace memkern {
namespace {

class Proc : public testing::FakeRoot {
 protected:
  Proc() { file("loadavg", "0.10 0.20 0.30 3/200 4711\n"); }
  void file(const std::string& path, const std::string& text) const {
    write("/proc/" + path, text);
  }
  // Fields 3 (state), 9 (flags), 20 (threads) and 39 (processor) are used.
  static std::string stat(int pid, const std::string& command, char state, int threads, int unit,
                          int flags = 0) {
    std::string text = std::to_string(pid) + " (" + command + ") " + state;
    const std::map<int, int> known{{9, flags}, {20, threads}, {39, unit}};
    for (int field = 4; field <= 52; ++field) {
      text += " " + std::to_string(known.count(field) != 0 ? known.at(field) : 0);
    }
    return text + "\n";
  }
  std::vector<RunningThread> found() const { return running_threads(root_); }
};

TEST_F(Proc, FindsRunningThreads) {
  file("10/stat", stat(10, "sleeper", 'S', 1, 0));
  file("11/stat", stat(11, "a (strange) name", 'R', 1, 3));
  file("12/stat", stat(12, "team", 'S', 2, 0));
  file("12/task/12/stat", stat(12, "team", 'S', 2, 0));
  file("12/task/13/stat", stat(13, "worker", 'R', 2, 5));
  file("self/stat", stat(1, "not a number", 'R', 1, 0));
  auto threads = found();
  std::sort(threads.begin(), threads.end(),
            [](const auto& a, const auto& b) { return a.process < b.process; });
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_EQ(threads[0].command, "a (strange) name");
  EXPECT_EQ(threads[0].unit, 3);
  EXPECT_EQ(threads[1].process, 12);
  EXPECT_EQ(threads[1].command, "worker");
  EXPECT_EQ(threads[1].unit, 5);
}

TEST_F(Proc, StopsIfNothingElseRuns) {
  file("11/stat", stat(11, "busy", 'R', 1, 3));
  file("loadavg", "0.10 0.20 0.30 1/200 4711\n");
  EXPECT_TRUE(found().empty());
}

TEST_F(Proc, IgnoresMalformedFiles) {
  for (const char* text : {"", "12", "12 (x", "12 (x) R", ")(", "12 (x) R 1 2 3"}) {
    file("12/stat", text);
    EXPECT_TRUE(found().empty()) << text;
  }
  file("loadavg", "nothing");
  EXPECT_TRUE(found().empty());
  EXPECT_TRUE(running_threads("/nowhere").empty());
}

TEST_F(Proc, LeavesOutTheKernelsOwnThreads) {
  file("17/stat", stat(17, "rcu_preempt", 'R', 1, 0, 2129984));
  file("18/stat", stat(18, "python3", 'R', 1, 0, 4194304));
  const auto threads = found();
  ASSERT_EQ(threads.size(), 1U);
  EXPECT_EQ(threads[0].command, "python3");
}

TEST_F(Proc, LeavesItselfOut) {
  file(std::to_string(getpid()) + "/stat", stat(getpid(), "me", 'R', 1, 0));
  EXPECT_TRUE(found().empty());
}

TEST(UnitReservation, ExcludesOtherProcesses) {
  constexpr int kUnit = 100000;  // that no machine has
  int ready[2];
  int done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t other = fork();
  if (other == 0) {
    const auto held = UnitReservation::reserve(kUnit);
    char c = held != nullptr ? '1' : '0';
    if (write(ready[1], &c, 1) != 1 || read(done[0], &c, 1) != 1) _exit(1);
    _exit(0);
  }
  char c = '0';
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  EXPECT_EQ(c, '1');
  EXPECT_EQ(UnitReservation::reserve(kUnit), nullptr);
  ASSERT_EQ(write(done[1], &c, 1), 1);
  waitpid(other, nullptr, 0);
  // Released at the end of the process that held it.
  const auto mine = UnitReservation::reserve(kUnit);
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(UnitReservation::reserve(kUnit), mine);  // cases of one process share it
  for (const int end : {ready[0], ready[1], done[0], done[1]}) close(end);
}

TEST(LeastBusyUnits, AvoidsBusyUnits) {
  const std::vector<int>& units = Topology::instance().allowed_units();
  if (units.size() < 2) GTEST_SKIP() << "one unit leaves no choice";
  for (const int busy : units) {
    int chosen = busy;
    // Another test may have reserved the units that are free.
    for (int attempt = 0; chosen == busy && attempt < 100; ++attempt) {
      if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const ChosenUnits found = least_busy_units(1, {{1, "busy", busy}});
      ASSERT_EQ(found.units.size(), 1U);
      chosen = found.units[0];
    }
    EXPECT_NE(chosen, busy);
  }
}

TEST(LeastBusyUnits, SharesNoUnitWhileAnotherIsFree) {
  const std::vector<int>& units = Topology::instance().allowed_units();
  const int all = static_cast<int>(units.size());
  const std::vector<RunningThread> others(3, {1, "busy", units.front()});
  for (int workers = 1; workers <= all; ++workers) {
    const ChosenUnits chosen = least_busy_units(workers, others);
    EXPECT_EQ(std::set<int>(chosen.units.begin(), chosen.units.end()).size(),
              static_cast<std::size_t>(workers));
  }
  const ChosenUnits many = least_busy_units(2 * all, others);
  for (const int unit : units) {
    EXPECT_EQ(std::count(many.units.begin(), many.units.end(), unit), 2) << unit;
  }
}

}  // namespace
}  // namespace memkern
