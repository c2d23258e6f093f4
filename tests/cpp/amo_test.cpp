// Atomic memory operations: every body on arrays that end at an inaccessible page, and with several
// workers that update the same words, where the thread sanitizer detects accesses that are not
// atomic.
#include "amo_cases.hpp"

namespace memkern {
namespace {

using namespace testing;

// Operations on VAL per iteration.
std::int64_t on_values(const std::string& kernel) {
  if (kernel == "amo.ptrchase") return 0;
  return kernel == "amo.scatter" || kernel == "amo.gather" || kernel == "amo.sg" ? 2 : 1;
}

template <class V, class W>
void run_fenced(const RegisteredEntry& e, const Shape& s) {
  const std::vector<W> wanted = as<W>(index_of(e.kernel, s));
  Fenced<V> values(scattered_values<V>(s.words(e.kernel), 5, 1000));
  Fenced<W> index(wanted);
  Fenced<std::uint64_t> tally(
      std::vector<std::uint64_t>(static_cast<std::size_t>(s.workers * kTallies), 0));
  const AmoArgs args{values.data(), index.data(), s.stride, s.hot, s.shared, 1,
                     tally.data(),  kTallies};
  const std::vector<V> before = values.values();
  for (int w = 0; w < s.workers; ++w) e.body(&args, {w * s.iters, (w + 1) * s.iters}, w);
  // No primitive changes indices.
  EXPECT_EQ(index.values(), wanted);
  const std::string form = e.template_variant;
  V grown = 0;
  const std::vector<V> after = values.values();
  for (std::size_t i = 0; i < after.size(); ++i) {
    grown = static_cast<V>(grown + after[i] - before[i]);
  }
  std::uint64_t applied = 0;
  std::uint64_t attempts = 0;
  std::uint64_t successes = 0;
  for (std::int64_t w = 0; w < s.workers; ++w) {
    const std::uint64_t* row = tally.data() + w * kTallies;
    applied += row[kApplied];
    attempts += row[kAttempts];
    successes += row[kSuccesses];
  }
  if (form.starts_with("add") || form.starts_with("plain") || form.starts_with("cas")) {
    EXPECT_EQ(grown, static_cast<V>(applied));
  }
  if (form.starts_with("cas")) {
    const std::int64_t looks = std::string(e.kernel) == "amo.sg" ? 2
                               : on_values(e.kernel) == 1        ? 0
                                                                 : 1;
    EXPECT_EQ(static_cast<std::int64_t>(attempts), s.count() * (looks + on_values(e.kernel)));
    EXPECT_EQ(successes, attempts);
  } else {
    EXPECT_EQ(attempts, 0U);
  }
}

TEST(Bodies, StayWithinTheirArrays) {
  const std::vector<RegisteredEntry> all = entries_of(is_amo);
  EXPECT_GT(all.size(), 500U);
  for (const RegisteredEntry& e : all) {
    const std::string dtype = e.dtype;
    for (const Shape& s : {Shape{1, 1, 1, false, 1}, Shape{37, 1, 1, true, 2},
                           Shape{16, 8, 3, false, 3}, Shape{9, 3, 2, true, 2}}) {
      SCOPED_TRACE(::testing::PrintToString(e));
      if (dtype == "uint64") run_fenced<std::uint64_t, std::uint64_t>(e, s);
      if (dtype == "uint32") run_fenced<std::uint32_t, std::uint32_t>(e, s);
      if (dtype == "float64") run_fenced<double, std::uint64_t>(e, s);
      if (dtype == "float32") run_fenced<float, std::uint32_t>(e, s);
    }
  }
}

// Fills all arrays and clears the tallies.
void restore(Problem& problem) {
  problem.fill(true);
  const Array& tally = problem.array("tally");
  for (std::int64_t i = 0; i < tally.rows * tally.columns; ++i) problem.poke(tally, i, 0.0);
}

// Sum of a tally over all workers.
std::uint64_t sum_of(const Problem& problem, Tally which) {
  const Array& tally = problem.array("tally");
  std::uint64_t sum = 0;
  for (std::int64_t w = 0; w < tally.rows; ++w) {
    std::uint64_t value = 0;
    const std::int64_t at = std::int64_t{w} * kTallies + which;
    problem.peek(tally, {&at, 1}, &value);
    sum += value;
  }
  return sum;
}

TEST(Workers, LoseNoAtomicUpdate) {
  const Shape s{200, 1, 1, true, 3};
  for (const RegisteredEntry& e : entries_of(is_amo)) {
    const std::string form = e.template_variant;
    const std::vector<std::int64_t> index = index_of(e.kernel, s);
    const auto problem = amo_case(e, s, index, s.words(e.kernel), 1).prepare(team_of(3));
    restore(*problem);
    const bool has_values = on_values(e.kernel) > 0;
    const auto before =
        has_values ? problem->digest("VAL") : std::pair<std::uint64_t, std::uint64_t>{};
    sample(team_of(3), e, *problem, 1);
    const std::uint64_t mask = std::string(e.dtype) == "uint32" ? 0xFFFFFFFFU : ~std::uint64_t{0};
    const std::uint64_t applied = sum_of(*problem, kApplied);
    // A failed swap with the target as the expected value stores a value of before.
    const bool undoes = form.starts_with("cas-target") && on_values(e.kernel) > 1;
    const bool adds = form.starts_with("add") || (form.starts_with("cas") && !undoes);
    if (has_values && adds && std::string(e.dtype).starts_with("uint")) {
      EXPECT_EQ((problem->digest("VAL").first - before.first) & mask, applied & mask)
          << ::testing::PrintToString(e);
    }
    if (!index.empty() && *e.index != '\0') {
      std::uint64_t sum = 0;
      for (const std::int64_t i : index) sum += static_cast<std::uint64_t>(i);
      EXPECT_EQ(problem->digest("IDX").first, sum);
    }
  }
}

// Long enough for two workers on two cores to run at the same time.
TEST(Workers, LoseNoUpdateOfASharedWord) {
  const Team team({2, "auto"});
  const Shape s{200'000, 1, 1, true, 2};
  for (const RegisteredEntry& e : entries_of(is_amo)) {
    if (std::string(e.kernel) != "amo.central" || std::string(e.dtype) != "uint64") continue;
    const std::string form = e.template_variant;
    if (!form.starts_with("cas-retry") && !form.starts_with("add")) continue;
    const auto problem = amo_case(e, s, {}, 1, 1).prepare(team);
    restore(*problem);
    const auto before = problem->digest("VAL");
    sample(team, e, *problem, 1);
    const auto all = static_cast<std::uint64_t>(s.count());
    EXPECT_EQ(sum_of(*problem, kSuccesses), form.starts_with("add") ? 0 : all)
        << ::testing::PrintToString(e);
    EXPECT_EQ(problem->digest("VAL").first - before.first, all) << ::testing::PrintToString(e);
  }
}

TEST(Prepare, RefusesAccessesOutOfBounds) {
  const Shape s{10, 1, 1, false, 2};
  const std::int64_t large = std::int64_t{1} << 62;
  const Integers index = index_of("amo.rand", s);
  struct {
    const char* kernel;
    Shape shape;
    Integers index;
    std::int64_t words;
    const char* says;
  } const wrong[] = {
      {"amo.stride1", s, {}, 19, "need an array of 20 words, not 19"},
      {"amo.striden", {10, 3, 1, false, 2}, {}, 57, "58 words"},
      {"amo.central", {10, 8, 3, true, 2}, {}, 16, "17 words"},
      {"amo.rand", s, index, 5, "outside 0 to 4"},
      {"amo.sg", s, {index.begin(), index.end() - 1}, 20, "at least 21 entries, not 20"},
      {"amo.ptrchase", s, Integers(21, 21), 1, "outside 0 to 20"},
      {"amo.stride1", {10, 1, 1, false, 3}, {}, 99, "3 workers"},
      {"amo.stride1", {large, 1, 1, false, 2}, {}, 99, "64 bits"},
      {"amo.striden", {10, large, 1, false, 2}, {}, 99, "64 bits"},
  };
  for (const auto& w : wrong) {
    const char* index_dtype = w.index.empty() ? "" : "int64";
    const Entry e{w.kernel, "", "uint64", index_dtype, nullptr, nullptr};
    const Given given = amo_case(e, w.shape, w.index, w.words, 1);
    EXPECT_TRUE(is_refused([&] { given.prepare(team_of(2)); }, w.says));
  }
}

}  // namespace
}  // namespace memkern
