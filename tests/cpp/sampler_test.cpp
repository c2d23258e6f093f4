// The sampler: every iteration runs once per invocation, for all schedules.
#include "core/sampler.hpp"

#include <atomic>

#include "core/clock.hpp"
#include "core/flusher.hpp"
#include "core/topology.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// Counts how often each iteration ran, and checks the order of steps.
struct Counter {
  explicit Counter(std::int64_t count) : size(count), ran_(at(count)) {}
  std::atomic<int>& ran(std::int64_t i) { return ran_[at(i)]; }
  std::int64_t size;
  std::atomic<std::int64_t> total{0};
  std::atomic<int> highest_worker{-1};
  std::atomic<int> outside{0};
  // A step of the same invocation that must be complete before this one begins.
  const Counter* after = nullptr;
  std::atomic<int> too_early{0};
  int finished = 0;
  int finished_early = 0;
  int finish_workers = 0;

 private:
  std::vector<std::atomic<int>> ran_;
};

void count_body(const void* args, Range range, int worker) {
  auto& counter = *const_cast<Counter*>(static_cast<const Counter*>(args));
  if (range.begin < 0 || range.end > counter.size || range.begin > range.end) {
    ++counter.outside;
    return;
  }
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const int before = counter.ran(i)++;
    if (counter.after != nullptr && counter.after->total < (before + 1) * counter.after->size) {
      ++counter.too_early;
    }
  }
  counter.total += range.end - range.begin;
  int seen = counter.highest_worker;
  while (seen < worker && !counter.highest_worker.compare_exchange_weak(seen, worker)) {
  }
}

void count_finish(const void* args, int workers) {
  auto& counter = *const_cast<Counter*>(static_cast<const Counter*>(args));
  ++counter.finished;
  counter.finish_workers = workers;
  if (counter.total != counter.finished * counter.size) ++counter.finished_early;
}

Step step_of(const Counter& counter, bool with_finish) {
  return {count_body, with_finish ? count_finish : nullptr, &counter, counter.size};
}

struct Way {
  Repetition repetition;
  Schedule::Kind kind;
  std::int64_t chunk;
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const Repetition r :
       {Repetition::Fork, Repetition::Barrier, Repetition::Spin, Repetition::Free}) {
    for (const std::int64_t chunk :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{1000}, kMax}) {
      all.push_back({r, Schedule::Kind::Static, chunk});
      if (r != Repetition::Free && chunk > 0) all.push_back({r, Schedule::Kind::Dynamic, chunk});
    }
  }
  return all;
}

class Ways : public ::testing::TestWithParam<Way> {
 protected:
  Sampler sampler(const Team& team) const {
    const Way& way = GetParam();
    return Sampler(team, {way.kind, way.chunk}, way.repetition);
  }
};

TEST_P(Ways, RunEveryIterationOnceAnInvocation) {
  for (const int threads : {1, 2, 3, 5}) {
    // Spinning workers that outnumber the processing units wait for the system's scheduler.
    if (GetParam().repetition == Repetition::Spin && threads > 2) continue;
    const Team team({threads, "none"});
    const Team::Session session(team);
    for (const std::int64_t count : {1, 2, 7, 64}) {
      for (const int invocations : {1, 3}) {
        Counter counter(count);
        const Step step = step_of(counter, false);
        const double seconds = sampler(team).sample({&step, 1}, invocations);
        EXPECT_GE(seconds, 0.0);
        EXPECT_EQ(counter.outside, 0);
        for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(counter.ran(i), invocations);
        EXPECT_LT(counter.highest_worker, threads);
        if (HasFailure()) {
          FAIL() << threads << " threads, count " << count << ", " << invocations << " invocations";
        }
      }
    }
  }
}

TEST_P(Ways, FinishOnceAllIsDone) {
  const Team::Session session(team_of(3));
  Counter counter(10);
  const Step step = step_of(counter, true);
  sampler(team_of(3)).sample({&step, 1}, 4);
  EXPECT_EQ(counter.finish_workers, 3);
  if (GetParam().repetition == Repetition::Free) {
    EXPECT_EQ(counter.finished, 1);
    EXPECT_EQ(counter.total, 40);
  } else {
    EXPECT_EQ(counter.finished, 4);
    EXPECT_EQ(counter.finished_early, 0);
  }
}

TEST_P(Ways, RunTheStepsOfASequenceInOrder) {
  const Team::Session session(team_of(3));
  const Counter first(13);
  Counter second(29);
  second.after = &first;
  const std::vector<Step> steps = {step_of(first, false), step_of(second, true)};
  std::vector<double> per_step = {0.0, 0.0};
  Sampler s = sampler(team_of(3));
  if (GetParam().repetition == Repetition::Free) {
    EXPECT_TRUE(is_refused([&] { s.sample(steps, 1, per_step); }, "use 'barrier'"));
    return;
  }
  const double seconds = s.sample(steps, 5, per_step);
  EXPECT_EQ(second.too_early, 0);
  EXPECT_EQ(first.total, 5 * 13);
  EXPECT_EQ(second.total, 5 * 29);
  EXPECT_EQ(second.finished, 5);
  // The times of the steps add up to the time of the sample.
  EXPECT_GT(per_step[0], 0.0);
  EXPECT_GT(per_step[1], 0.0);
  EXPECT_LE(per_step[0] + per_step[1], seconds + 1e-6);
}

// The parts that each worker got, invocation by invocation.
struct Ledger {
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> parts;
};

void record_body(const void* args, Range range, int worker) {
  auto& ledger = *const_cast<Ledger*>(static_cast<const Ledger*>(args));
  ledger.parts[at(worker)].emplace_back(range.begin, range.end);
}

TEST_P(Ways, FollowBoundariesIfAWorkerHasOneRange) {
  // Empty parts at the start, in between and at the end.
  for (const std::vector<std::int64_t>& boundaries :
       {std::vector<std::int64_t>{0, 1, 9, 20}, {0, 0, 20, 20}, {0, 20, 20, 20}, {0, 7, 7, 20}}) {
    const Team::Session session(team_of(3));
    Counter counter(20);
    const Step counted{count_body, count_finish, &counter, 20, boundaries.data()};
    sampler(team_of(3)).sample({&counted, 1}, 2);
    EXPECT_EQ(counter.outside, 0);
    EXPECT_EQ(counter.finish_workers, 3);
    for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(counter.ran(i), 2) << i;
    if (GetParam().kind != Schedule::Kind::Static || GetParam().chunk != 0) continue;
    Ledger ledger{std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>(3)};
    const Step recorded{record_body, nullptr, &ledger, 20, boundaries.data()};
    sampler(team_of(3)).sample({&recorded, 1}, 2);
    for (std::size_t w = 0; w < 3; ++w) {
      const std::pair<std::int64_t, std::int64_t> part{boundaries[w], boundaries[w + 1]};
      EXPECT_EQ(ledger.parts[w], (std::vector<std::pair<std::int64_t, std::int64_t>>{part, part}));
    }
  }
}

void wait_body(const void* args, Range, int) {
  const double end = now() + *static_cast<const double*>(args);
  while (now() < end) {
  }
}

TEST_P(Ways, AddTimeToTheStepThatTookIt) {
  if (GetParam().repetition == Repetition::Free) return;
  const Team::Session session(team_of(2));
  const double short_s = 0.0;
  const double long_s = 2e-3;
  for (const std::size_t slow : {0U, 1U}) {
    std::vector<Step> steps(2, {wait_body, nullptr, &short_s, 2});
    steps[slow].args = &long_s;
    double longest = 0.0;
    // The worker that reads the clock may lose its processor when the others begin.
    for (int attempt = 0; attempt < 200 && longest < 2 * long_s - 1e-6; ++attempt) {
      std::vector<double> per_step = {10.0, 20.0};
      const double seconds = sampler(team_of(2)).sample(steps, 2, per_step);
      const double took[2] = {per_step[0] - 10.0, per_step[1] - 20.0};
      EXPECT_GE(took[1 - slow], 0.0);
      EXPECT_LE(took[0] + took[1], seconds + 1e-6);
      longest = std::max(longest, took[slow]);
    }
    // On one processing unit this always happens.
    const bool alone = Topology::instance().allowed_units().size() == 1;
    EXPECT_GE(longest, alone ? 0.0 : 2 * long_s - 1e-6);
  }
}

std::string name_of(const ::testing::TestParamInfo<Way>& tried) {
  const Way& way = tried.param;
  const std::map<Repetition, std::string> names = {{Repetition::Fork, "fork"},
                                                   {Repetition::Barrier, "barrier"},
                                                   {Repetition::Spin, "spin"},
                                                   {Repetition::Free, "free"}};
  return names.at(way.repetition) +
         (way.kind == Schedule::Kind::Static ? "_static_" : "_dynamic_") +
         std::to_string(way.chunk);
}

INSTANTIATE_TEST_SUITE_P(All, Ways, ::testing::ValuesIn(ways()), name_of);

TEST(Sampler, RefusesAFreeRunningDynamicSchedule) {
  const std::string message = refusal<InputError>([&] {
    Sampler(team_of(1), {Schedule::Kind::Dynamic, 1}, Repetition::Free);
  });
  EXPECT_TRUE(contains(message, "use schedule 'static'"));
}

TEST(Sampler, ParsesOptions) {
  EXPECT_EQ(refusal<InputError>([] { parse_repetition("Fork"); }),
            "repetition 'Fork' is not fork, barrier, spin or free");
  EXPECT_EQ(parse_schedule("static", 0).chunk, 0);
  EXPECT_EQ(parse_schedule("dynamic", 0).chunk, 1);
  EXPECT_EQ(parse_schedule("dynamic", 9).kind, Schedule::Kind::Dynamic);
  EXPECT_TRUE(is_refused([] { parse_schedule("guided", 1); }, "'guided'"));
  EXPECT_TRUE(is_refused([] { parse_schedule("static", -1); }, "negative"));
}

TEST(ContiguousPart, CoversWithoutOverlap) {
  for (const std::int64_t count : Integers{0, 1, 2, 3, 7, 64, 1001, kMax}) {
    for (const int workers : {1, 2, 3, 7, 64}) {
      std::int64_t next = 0;
      for (int w = 0; w < workers; ++w) {
        const Range part = contiguous_part(count, workers, w);
        EXPECT_EQ(part.begin, next);
        EXPECT_LE(part.end - part.begin - 1, count / workers);
        EXPECT_GE(part.end - part.begin, count / workers);
        next = part.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(ParallelParts, GiveEachWorkerItsRow) {
  for (const std::int64_t rows : {1, 2, 3, 5}) {
    const std::int64_t size = rows * 7;
    std::vector<int> owner(at(size), -1);
    parallel_parts(team_of(3), rows, size, [&](Range part, int worker) {
      for (std::int64_t i = part.begin; i < part.end; ++i) owner[at(i)] = worker;
    });
    for (std::int64_t i = 0; i < size; ++i) {
      const int who = owner[at(i)];
      if (rows == 1) {
        EXPECT_GE(who, 0);
      } else {
        EXPECT_EQ(who, i / 7);
      }
    }
  }
}

TEST(ParallelParts, FollowBoundaries) {
  // The same number of parts as workers, fewer and more.
  for (const std::vector<std::int64_t>& boundaries :
       {std::vector<std::int64_t>{0, 2, 2, 11}, {0, 11}, {3, 8}, {0, 1, 2, 5, 5, 11}}) {
    std::vector<int> owner(11, -1);
    std::atomic<int> parts{0};
    parallel_parts(team_of(3), boundaries, [&](Range part, int number) {
      ++parts;
      EXPECT_EQ(part.begin, boundaries[at(number)]);
      EXPECT_EQ(part.end, boundaries[at(number) + 1]);
      for (std::int64_t i = part.begin; i < part.end; ++i) owner[at(i)] = number;
    });
    EXPECT_EQ(parts, std::ssize(boundaries) - 1);
    for (std::int64_t i = 0; i < 11; ++i) {
      const auto after = std::upper_bound(boundaries.begin(), boundaries.end(), i);
      const bool inside = after != boundaries.begin() && after != boundaries.end();
      EXPECT_EQ(owner[at(i)], inside ? after - boundaries.begin() - 1 : -1);
    }
  }
}

TEST(CacheFlusher, WritesEveryLineAndForgetsTheContents) {
  Buffer buffer(64 * 100 + 17, Placement{});
  buffer.content = "values";
  CacheFlusher flusher(team_of(2), buffer);
  for (int round = 1; round < 4; ++round) {
    flusher.flush();
    EXPECT_EQ(buffer.content, "");
    // Parts of workers may begin within a line, so that a line is not always written at its start.
    for (std::int64_t line = 0; line + 64 < buffer.capacity(); line += 64) {
      bool written = false;
      for (std::int64_t i = line; i < line + 64; ++i) {
        written = written || std::to_integer<int>(buffer.data()[i]) == round;
      }
      EXPECT_TRUE(written) << line;
    }
  }
}

TEST(Clock, IsMonotonic) {
  EXPECT_GT(clock_tick(), 0.0);
  double last = now();
  for (int i = 0; i < 1000; ++i) {
    const double next = now();
    EXPECT_GE(next, last);
    last = next;
  }
}

}  // namespace
}  // namespace memkern
