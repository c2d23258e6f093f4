// Threads and their binding, on any machine: one unit is enough.
#include "core/team.hpp"

#include <omp.h>
#include <sched.h>

#include <thread>

#include "core/topology.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

std::vector<int> units() { return Topology::instance().allowed_units(); }
std::string first_unit() { return std::to_string(units().front()); }

std::set<int> binding() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::set<int> out;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) out.insert(i);
  }
  return out;
}

// Processing units on which each worker of the team may run, within a Session.
std::vector<std::set<int>> workers_bindings(const Team& team) {
  std::vector<std::set<int>> out(at(team.size()));
  parallel_parts(team, team.size(), team.size(),
                 [&](Range, int worker) { out[at(worker)] = binding(); });
  return out;
}

TEST(Topology, UsesOnlyUnitsThatTheProcessWasGiven) {
  const std::set<int> given = binding();
  for (const int unit : units()) EXPECT_TRUE(given.count(unit)) << unit;
}

TEST(Topology, PlacesWorkersOnAllowedUnits) {
  const std::vector<int> allowed = units();
  for (const int workers : {1, 2, static_cast<int>(allowed.size()), 9}) {
    for (const auto& chosen :
         {Topology::instance().compact(workers), Topology::instance().spread(workers)}) {
      ASSERT_EQ(static_cast<int>(chosen.size()), workers);
      for (const int unit : chosen) {
        EXPECT_NE(std::find(allowed.begin(), allowed.end(), unit), allowed.end());
      }
      if (workers <= static_cast<int>(allowed.size())) {
        EXPECT_EQ(std::set<int>(chosen.begin(), chosen.end()).size(), chosen.size());
      }
    }
  }
}

TEST(Team, BindsToTheListedUnits) {
  std::string list;
  std::vector<std::set<int>> wanted;
  std::vector<int> backwards = units();
  std::reverse(backwards.begin(), backwards.end());
  for (const int unit : backwards) {
    list += (list.empty() ? "" : ",") + std::to_string(unit);
    wanted.push_back({unit});
  }
  const Team team({0, list});
  EXPECT_EQ(team.pin_obtained(), list);
  EXPECT_EQ(workers_bindings(team), wanted);
}

TEST(Team, BindsEachWorkerToAUnitOfItsOwn) {
  for (const char* pin : {"compact", "spread", "auto"}) {
    const Team team({0, pin});
    std::string obtained;
    std::set<int> seen;
    for (const std::set<int>& where : workers_bindings(team)) {
      ASSERT_EQ(where.size(), 1U);
      seen.insert(*where.begin());
      obtained += (obtained.empty() ? "" : ",") + std::to_string(*where.begin());
    }
    EXPECT_EQ(team.pin_obtained(), obtained);
    EXPECT_EQ(seen.size(), units().size());
  }
  // More workers than units take turns.
  const int more = static_cast<int>(units().size()) + 1;
  EXPECT_EQ(Team({more, "auto"}).size(), more);
}

TEST(Team, AcceptsARangeOfUnits) {
  const std::string range = first_unit() + "-" + first_unit();
  EXPECT_EQ(Team({0, range}).size(), 1);
  EXPECT_EQ(Team({1, range}).pin_obtained(), first_unit());
}

TEST(Team, ReleasesWorkers) {
  const std::set<int> before = binding();
  { const Team pinned({0, "compact"}); }
  const Team floating({0, "none"});
  for (const std::set<int>& where : workers_bindings(floating)) EXPECT_EQ(where, before);
}

// Binds the calling thread to some units, as taskset, control groups and removed processors do.
void bind(const std::set<int>& to) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int unit : to) CPU_SET(at(unit), &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

TEST(Team, UsesTheUnitsThatTheProcessMayUseNow) {
  const std::set<int> all = binding();
  const std::set<int> last{*all.rbegin()};
  { const Team before({0, "auto"}); }
  bind(last);
  const Team fewer({0, "auto"});
  EXPECT_EQ(fewer.size(), 1);
  EXPECT_EQ(fewer.pin_obtained(), std::to_string(*last.begin()));
  const Team floating({2, "none"});
  for (const std::set<int>& where : workers_bindings(floating)) EXPECT_EQ(where, last);
  if (all.size() > 1) {
    const std::string lost = std::to_string(*all.begin());
    EXPECT_TRUE(is_refused([&] { Team({1, lost}); }, "unit " + lost));
  }
  bind(all);
  EXPECT_EQ(Team({0, "auto"}).size(), static_cast<int>(all.size()));
  EXPECT_EQ(binding(), all);
}

TEST(Team, BindsWorkersAgainThatOthersHaveBound) {
  const std::set<int> all = binding();
  const Team team({0, "compact"});
  std::vector<std::set<int>> wanted = workers_bindings(team);
#pragma omp parallel num_threads(team.size())
  if (omp_get_thread_num() != 0) bind({*all.begin()});
  EXPECT_EQ(Team({0, "compact"}).pin_obtained(), team.pin_obtained());
  EXPECT_EQ(workers_bindings(team), wanted);
}

TEST(Team, LeavesTheCallerWithoutUnitsThatItHasLost) {
  const std::set<int> all = binding();
  const std::set<int> last{*all.rbegin()};
  const Team team({1, first_unit()});
  {
    const Team::Session session(team);
    bind(last);
  }
  EXPECT_EQ(binding(), last);
  bind(all);
}

TEST(Team, RestoresTheBindingOfTheCaller) {
  const std::set<int> before = binding();
  const Team team({1, first_unit()});
  EXPECT_EQ(binding(), before);
  {
    const Team::Session session(team);
    EXPECT_EQ(binding(), std::set<int>{units().front()});
    { const Team::Session inner(team); }
    EXPECT_EQ(binding(), std::set<int>{units().front()});
  }
  EXPECT_EQ(binding(), before);
}

TEST(Team, BindsTheWorkersOfEachCallingThread) {
  // Each calling thread has its own workers with their own binding.
  const std::set<int> before = binding();
  const Team pinned({0, "compact"});
  const Team floating({0, "none"});
  std::vector<std::set<int>> seen;
  std::thread caller([&] {
    workers_bindings(pinned);
    std::thread([&] { workers_bindings(floating); }).join();
    seen = workers_bindings(floating);
  });
  caller.join();
  for (const std::set<int>& where : seen) EXPECT_EQ(where, before);
}

class BadPin : public ::testing::TestWithParam<const char*> {};

TEST_P(BadPin, IsRefusedByName) {
  EXPECT_TRUE(is_refused([] { Team({1, GetParam()}); }, "pin"));
}

INSTANTIATE_TEST_SUITE_P(All, BadPin,
                         ::testing::Values("", ",", "0,", ",0", "-1", "a", "0-", "-", "0--1", "0x1",
                                           " 0", "0 ", "0.5", "Compact", "1-0", "99999",
                                           "0-99999999999", "99999999999999999999", "0-65534"));

TEST(Team, RefusesListsWithoutAUnitForEachWorker) {
  EXPECT_TRUE(is_refused([] { Team({2, first_unit()}); }, "list one for each"));
  const std::string range = first_unit() + "-" + first_unit();
  for (const std::string& list : {first_unit() + "," + first_unit(), range + "," + first_unit()}) {
    EXPECT_TRUE(is_refused([&] { Team({0, list}); }, "unit " + first_unit() + " twice"));
  }
}

TEST(Team, RefusesAbsurdNumbersOfThreads) {
  for (const int threads : {-1, 1 << 20}) {
    const std::string message = refusal<InputError>([&] { Team({threads, "none"}); });
    EXPECT_TRUE(contains(message, "threads must lie between 1 and"));
    EXPECT_TRUE(contains(message, std::to_string(threads)));
  }
}

TEST(Team, HasAMemoryKeyForItsPlacement) {
  EXPECT_NE(Team({1, "none"}).memory_key(), Team({2, "none"}).memory_key());
  // The placement of workers affects memory only with several NUMA nodes.
  const bool nodes = Topology::instance().numa_nodes().size() > 1;
  EXPECT_EQ(Team({1, "none"}).memory_key() != Team({1, first_unit()}).memory_key(), nodes);
  EXPECT_EQ(Team({2, "none"}).memory_key(), Team({2, "none"}).memory_key());
}

}  // namespace
}  // namespace memkern
