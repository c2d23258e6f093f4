// Counters: software events of the kernel, compared with the known counts of some work, and known
// counts of a source that the sampler reads.
#include "core/counters.hpp"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// Most faults per touched page, for which sanitizers touch one or two pages of their own, and most
// other faults, of stacks and of the runtime.
#if defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif
constexpr std::uint64_t kMostForPage = kSanitized ? 3 : 1;
constexpr std::uint64_t kMostOther = kSanitized ? 500 : 20;

// Faults of user code, which ordinary users may count on most systems.
const EventCode kFaults{
    "page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 0, 0, -1, true, false};

// Untouched memory in pages of the smallest size.
class Fresh {
 public:
  explicit Fresh(std::int64_t pages) : page_B_(sysconf(_SC_PAGESIZE)), pages_(pages) {
    void* got = mmap(nullptr, at(pages * page_B_), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    data_ = static_cast<volatile char*>(got);
    madvise(got, at(pages * page_B_), MADV_NOHUGEPAGE);
  }
  ~Fresh() { munmap(const_cast<char*>(data_), at(pages_ * page_B_)); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;

  std::int64_t pages() const { return pages_; }
  static void touch(const void* args, Range range, int) {
    const auto& self = *static_cast<const Fresh*>(args);
    for (std::int64_t i = range.begin; i < range.end; ++i) self.data_[i * self.page_B_] = 1;
  }

 private:
  std::int64_t page_B_;
  std::int64_t pages_;
  volatile char* data_;
};

TEST(Counters, CountOnePageFaultForEachPageTouched) {
  if (!why_not_counted(kFaults).empty()) GTEST_SKIP() << why_not_counted(kFaults);
  for (const Repetition how :
       {Repetition::Fork, Repetition::Barrier, Repetition::Spin, Repetition::Free}) {
    for (const int workers : {1, 2}) {
      constexpr std::int64_t kPages = 5000;
      const Team team({workers, "none"});
      const Team::Session session(team);
      Counters counters(team, {kFaults});
      Sampler sampler(team, {}, how);
      // The sampler's own memory is touched in the first sample.
      const Fresh before(1);
      const Fresh fresh(kPages);
      const Step first{Fresh::touch, nullptr, &before, before.pages()};
      sampler.sample({&first, 1}, 1, {}, &counters);
      const Step step{Fresh::touch, nullptr, &fresh, fresh.pages()};
      sampler.sample({&step, 1}, 1, {}, &counters);
      Count count;
      counters.sum({&count, 1});
      EXPECT_GE(count.value, static_cast<std::uint64_t>(kPages));
      EXPECT_LE(count.value, kMostForPage * kPages + kMostOther);
      EXPECT_GT(count.enabled_ns, 0U);
      EXPECT_EQ(count.enabled_ns, count.running_ns);  // software events are never multiplexed
      // A second sample touches no new page.
      sampler.sample({&step, 1}, 3, {}, &counters);
      counters.sum({&count, 1});
      EXPECT_LE(count.value, kMostOther);
    }
  }
}

TEST(Counters, RefuseAnEventThatCannotBeCounted) {
  // No processor has a generic event with this number.
  const EventCode unknown{"nonsense", PERF_TYPE_HARDWARE, 4242, 0, 0, -1, true, false};
  EXPECT_FALSE(why_not_counted(unknown).empty());
  if (!why_not_counted(kFaults).empty()) GTEST_SKIP() << why_not_counted(kFaults);
  const Team::Session session(team_of(2));
  const std::string message = refusal<InputError>([&] {
    const Counters counters(team_of(2), {kFaults, unknown});
  });
  EXPECT_TRUE(contains(message, "event 'nonsense' can't be counted: "));
}

// Replaces the kernel's counters during its lifetime.
template <class Source = SteppedEvents>
class Replaced {
 public:
  explicit Replaced(std::vector<SteppedEvents::Step> steps) : source_(std::move(steps)) {
    replace_event_source(&source_);
  }
  ~Replaced() { replace_event_source(nullptr); }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;
  const SteppedEvents& source() const { return source_; }

 private:
  Source source_;
};

EventCode raw(std::uint64_t config, int unit = -1) {
  return {"raw", PERF_TYPE_RAW, config, 0, 0, unit, true, false};
}

void nothing(const void*, Range, int) {}

// The counts of a number of events in a sample in which workers do nothing.
std::vector<Count> counted(const Team& team, Counters& counters, std::size_t events,
                           Repetition how = Repetition::Fork) {
  const Step step{nothing, nullptr, nullptr, 10};
  Sampler(team, {}, how).sample({&step, 1}, 5, {}, &counters);
  std::vector<Count> counts(events, Count{1, 1, 1});
  counters.sum(counts);
  return counts;
}

TEST(Counters, SumWorkersAndReadWholeUnitsOnce) {
  const Replaced<> replaced(
      {{PERF_TYPE_RAW, 1, {100, 1000, 250}}, {PERF_TYPE_RAW, 2, {7, 10, 10}}});
  for (const Repetition how :
       {Repetition::Fork, Repetition::Barrier, Repetition::Spin, Repetition::Free}) {
    const Team::Session session(team_of(2));
    Counters counters(team_of(2), {raw(1), raw(2, 0)});
    for (int sample = 0; sample < 3; ++sample) {
      const std::vector<Count> counts = counted(team_of(2), counters, 2, how);
      EXPECT_EQ(counts[0].value, 200U);
      EXPECT_EQ(counts[0].enabled_ns, 2000U);
      EXPECT_EQ(counts[0].running_ns, 500U);
      EXPECT_EQ(counts[1].value, 7U);
    }
    // One for each worker, and one for the unit.
    EXPECT_EQ(replaced.source().opened(), 3);
  }
}

// For example, one event counts off-core responses, whose kind a further word selects.
TEST(Counters, TellEventsApartByAllTheirWords) {
  const Replaced<> replaced({{PERF_TYPE_RAW, 1, {5, 1, 1}, 0, -1, 0x10, 0},
                             {PERF_TYPE_RAW, 1, {7, 1, 1}, 0, -1, 0x20, 0},
                             {PERF_TYPE_RAW, 1, {9, 1, 1}, 0, -1, 0x20, 3}});
  const Team::Session session(team_of(1));
  const auto of = [](std::uint64_t config1, std::uint64_t config2) {
    return EventCode{"raw", PERF_TYPE_RAW, 1, config1, config2, -1, true, false};
  };
  Counters counters(team_of(1), {of(0x20, 3), of(0x20, 0), of(0x10, 0)});
  const std::vector<Count> counts = counted(team_of(1), counters, 3);
  EXPECT_EQ(counts[0].value, 9U);
  EXPECT_EQ(counts[1].value, 7U);
  EXPECT_EQ(counts[2].value, 5U);
  EXPECT_FALSE(why_not_counted(of(0, 0)).empty());
}

TEST(Counters, CloseThemselvesAndThoseOfARefusedSet) {
  const Replaced<> replaced({{PERF_TYPE_RAW, 1, {1, 1, 1}}, {PERF_TYPE_RAW, 2, {1, 1, 1}, EACCES}});
  const Team::Session session(team_of(2));
  { const Counters counters(team_of(2), {raw(1)}); }
  EXPECT_EQ(replaced.source().opened(), 0);
  const std::string message = refusal<InputError>([&] {
    const Counters counters(team_of(2), {raw(1), raw(2)});
  });
  EXPECT_TRUE(contains(message, "the system does not permit it"));
  EXPECT_EQ(replaced.source().opened(), 0);
}

TEST(Counters, ShowThatACounterHasVanished) {
  const Replaced<> replaced({{PERF_TYPE_RAW, 1, {100, 10, 10}, 0, 3}});
  const Team::Session session(team_of(1));
  Counters counters(team_of(1), {raw(1)});
  EXPECT_EQ(counted(team_of(1), counters, 1)[0].value, 100U);
  for (int sample = 0; sample < 2; ++sample) {
    const Count count = counted(team_of(1), counters, 1)[0];
    EXPECT_EQ(count.value, 0U);
    EXPECT_EQ(count.enabled_ns, 0U);
  }
}

// A source whose first opened counter can't be read.
class FirstLost : public SteppedEvents {
 public:
  using SteppedEvents::SteppedEvents;
  bool read(int counter, Count& count) override {
    return counter > 0 && SteppedEvents::read(counter, count);
  }
};

TEST(Counters, KnowNoSumWithoutOneWorker) {
  const Replaced<FirstLost> replaced({{PERF_TYPE_RAW, 1, {100, 10, 10}}});
  const Team::Session session(team_of(2));
  Counters counters(team_of(2), {raw(1)});
  const Count count = counted(team_of(2), counters, 1, Repetition::Barrier)[0];
  EXPECT_EQ(count.value, 0U);
  EXPECT_EQ(count.enabled_ns, 0U);
  EXPECT_EQ(count.running_ns, 0U);
}

TEST(Counters, NameTheReasonOfEveryError) {
  for (const int error :
       {ENOENT, EACCES, EPERM, ENODEV, EOPNOTSUPP, EINVAL, ENOSYS, EMFILE, EBUSY, EIO}) {
    const Replaced<> replaced({{PERF_TYPE_RAW, 1, {}, error}});
    EXPECT_FALSE(why_not_counted(raw(1)).empty());
  }
  const Replaced<> unreadable({{PERF_TYPE_RAW, 1, {1, 1, 1}, 0, 0}});
  EXPECT_EQ(why_not_counted(raw(1)), "its counter can't be read");
}

}  // namespace
}  // namespace memkern
