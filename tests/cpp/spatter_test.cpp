// Gather/scatter cases: their preparation, and runs by several workers through the sampler, in
// which the thread sanitizer detects races: no two workers access the same element.
#include "families/spatter/args.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// Inputs of a caller, with defaults for inputs that a test does not set.
struct Request : Given {
  explicit Request(const std::string& name = "gather") {
    kernel = "spatter." + name;
    index_dtype = "int64";
    integers = {{"count", 24}, {"wrap", 1}, {"prefetch", 0}};
    indices = {{"pattern", {0, 2, 5}},
               {"pattern_gather", {0, 1, 2}},
               {"pattern_scatter", {2, 0, 1}},
               {"delta_gather", {3}},
               {"delta_scatter", {3}}};
  }
  std::string form() const { return kernel.substr(8); }
};

TEST(Prepare, SizesTheArraysByTheWalk) {
  struct {
    Integers pattern;
    Integers delta;
    std::int64_t count;
    std::int64_t columns;
    std::int64_t origin;
  } const walks[] = {{{0, 9}, {4}, 10, 9 * 4 + 9 + 1, 0},
                     {{0, 1}, {-4}, 6, 5 * 4 + 2, 20},
                     {{0}, {5, -7, 1}, 7, 5 + 3 + 1, 3},  // bases 0 5 -2 -1 4 -3 -2
                     {{0}, {5, -7, 1}, 2, 6, 0}};
  for (const auto& walk : walks) {
    Request r;
    r.indices["pattern_gather"] = walk.pattern;
    r.indices["delta_gather"] = walk.delta;
    r.integers["count"] = walk.count;
    r.integers["wrap"] = 3;
    const auto problem = r.prepare(team_of(2));
    EXPECT_EQ(problem->array("sparse").columns, walk.columns);
    EXPECT_EQ(static_cast<const SpatterArgs*>(problem->args())->gather_walk.origin, walk.origin);
    EXPECT_EQ(problem->array("dense").columns, 3 * std::ssize(walk.pattern));
    EXPECT_EQ(problem->array("dense").rows, 2);
  }
}

TEST(Prepare, RefusesWrongInputByName) {
  const auto list = [](const char* name, const std::vector<std::int64_t>& values) {
    return [=](Request& r) { r.indices[name] = values; };
  };
  const std::vector<Wrong<Request>> wrong = {
      {list("pattern_gather", {0, -3}), "pattern_gather[1] is -3"},
      {list("pattern_gather", {}), "pattern_gather must not be empty"},
      {[](Request& r) { r.indices.erase("delta_gather"); }, "'delta_gather' is missing"},
      {set("prefetch", -1), "prefetch must be at least 0"},
      {[](Request& r) { r.kernel += "2"; }, "'spatter.gather2'"},
      {[](Request& r) { r.dtype = "int32"; }, "dtype 'int32'"},
      {[](Request& r) { r.index_dtype = "float32"; }, "index_dtype 'float32'"},
      {[](Request& r) {
         r.kernel = "spatter.gs";
         r.indices["pattern_scatter"] = {0, 1};
       },
       "gs needs as many of both"},
      {[](Request& r) {
         r.kernel = "spatter.multigather";
         r.indices["pattern_gather"] = {0, 3};
       },
       "pattern_gather[1] is 3, outside 0 to 2"},
      {[](Request& r) {
         r.index_dtype = "int32";
         r.indices["pattern_gather"] = {std::int64_t{1} << 31};
         r.integers["count"] = 1;
       },
       "use int64"},
      {list("pattern_gather", {kMax}), "does not fit 64 bits"},
      {list("delta_gather", {kMax}), "does not fit 64 bits"},
      {list("delta_gather", {kMax, kMax}), "the base that delta_gather reaches"},
      {list("delta_gather", {-kMax - 1}), "does not fit 64 bits"},
      {set("count", kMax), "does not fit 64 bits"},
      {set("wrap", kMax), "does not fit 64 bits"},
  };
  expect_refused(Request(), wrong);
}

// Hardware gathers of 4-byte values have 4-byte indices.
TEST(Prepare, RunsNarrowGathersWithinTheirReach) {
  constexpr std::int64_t kReach = std::numeric_limits<std::int32_t>::max();
  testing::FakeDevice device;  // has room for such arrays
  Placement placement;
  placement.device = &device;
  for (const std::string dtype : {"float32", "float64"}) {
    for (const std::int64_t highest : {std::int64_t{9}, kReach, kReach + 1}) {
      Request r;
      r.dtype = dtype;
      r.indices["pattern_gather"] = {0, highest};
      const auto problem = r.prepare(team_of(1), placement);
      const bool beyond = dtype == "float32" && highest > kReach;
      for (const RegisteredEntry& e : registered_entries()) {
        if (e.kernel != std::string("spatter.gather") || e.dtype != dtype ||
            e.index != r.index_dtype) {
          continue;
        }
        const std::string variant = e.variant;
        EXPECT_EQ(problem->runs(e), !(beyond && variant == "simd")) << variant << " " << highest;
      }
    }
  }
}

struct Way {
  Repetition repetition;
  Schedule schedule;
};

const Array& array(const Problem& problem, bool written) {
  const std::vector<Array>& all = problem.arrays();
  return all.front().written == written ? all.front() : all.back();
}

std::vector<double> values(const Problem& problem, bool written) {
  const Array& a = array(problem, written);
  std::vector<double> all;
  for (std::int64_t i = 0; i < a.rows * a.columns; ++i) all.push_back(problem.peek(a, i));
  return all;
}

// Positions in the sparse array that an instance reads ("gather") or writes ("scatter").
std::vector<std::size_t> positions(const Request& r, const std::string& way, std::int64_t n) {
  const bool multi = r.form().starts_with("multi");
  std::vector<std::size_t> all;
  for (const std::int64_t i : r.indices.at("pattern_" + way)) {
    const std::int64_t index = multi ? r.indices.at("pattern")[at(i)] : i;
    all.push_back(at(n * r.indices.at("delta_" + way).front() + index));
  }
  return all;
}

// Checks the array that a case has written; its values were `before`.
void expect_moved(const Request& r, const Problem& problem, const std::vector<double>& before) {
  const std::vector<double> from = values(problem, false);
  const std::vector<double> found = values(problem, true);
  const std::int64_t count = r.integers.at("count");
  if (r.kernel.ends_with("gather")) {
    std::set<std::vector<double>> instances;
    for (std::int64_t n = 0; n < count; ++n) {
      std::vector<double> one;
      for (const std::size_t i : positions(r, "gather", n)) one.push_back(from[i]);
      instances.insert(one);
    }
    // Each worker has the elements of the last of its instances, if it had any.
    const std::int64_t length = array(problem, true).columns;
    const auto row = [&](const std::vector<double>& all, std::int64_t worker) {
      const auto begin = all.begin() + worker * length;
      return std::vector<double>(begin, begin + length);
    };
    int working = 0;
    for (std::int64_t worker = 0; worker < array(problem, true).rows; ++worker) {
      const bool moved = instances.contains(row(found, worker));
      working += moved ? 1 : 0;
      EXPECT_TRUE(moved || row(found, worker) == row(before, worker));
    }
    EXPECT_GE(working, 1);
    return;
  }
  std::vector<double> wanted = before;
  for (std::int64_t n = 0; n < count; ++n) {
    const std::vector<std::size_t> to = positions(r, "scatter", n);
    std::vector<std::size_t> read = ascending<std::size_t>(std::ssize(to));
    if (r.form() == "gs") read = positions(r, "gather", n);
    for (std::size_t j = 0; j < to.size(); ++j) wanted[to[j]] = from[read[j]];
  }
  EXPECT_EQ(found, wanted);
}

// Lists of 100 indices, which two instances divide among workers.
void make_long(Request& r) {
  std::vector<std::int64_t> some(100);
  for (std::int64_t i = 0; i < std::ssize(some); ++i) some[at(i)] = 37 * i % 100;
  r.indices["pattern_gather"] = r.indices["pattern_scatter"] = some;
  for (std::int64_t& i : some) i *= 2;
  r.indices["pattern"] = some;
  r.indices["delta_gather"] = r.indices["delta_scatter"] = {200};
  r.integers["count"] = 2;
}

TEST(Prepare, DividesLongPatternsByTheirIndices) {
  Request r;
  make_long(r);
  const auto problem = r.prepare(team_of(4));
  EXPECT_EQ(problem->count(), 7);
  EXPECT_EQ(problem->array("dense").rows, 1);
  r.indices["pattern_gather"][41] = -1;
  EXPECT_TRUE(is_refused([&] { r.prepare(team_of(4)); }, "pattern_gather[41] is -1"));
  r.kernel = "spatter.multigather";
  r.indices["pattern_gather"][41] = 100;
  EXPECT_TRUE(is_refused([&] { r.prepare(team_of(4)); }, "pattern_gather[41] is 100"));
  r.indices["pattern_gather"][41] = kMax;
  EXPECT_TRUE(is_refused([&] { r.prepare(team_of(4)); }, "pattern_gather[41] is 9223372036854"));
  r.kernel = "spatter.scatter";
  r.index_dtype = "int32";
  r.indices["pattern_scatter"][3] = std::int64_t{1} << 31;
  EXPECT_TRUE(is_refused([&] { r.prepare(team_of(4)); }, "use int64"));
  testing::FakeDevice device;
  Placement placement;
  placement.device = &device;
  r.index_dtype = "int64";
  EXPECT_EQ(r.prepare(team_of(4), placement)->count(), 2);
}

// Different instances scatter to different elements: pattern 0..2 in some order, delta 3.
TEST(Workers, GatherAndScatterWithoutRaces) {
  const std::vector<Way> ways = {{Repetition::Fork, {Schedule::Kind::Static, 0}},
                                 {Repetition::Fork, {Schedule::Kind::Dynamic, 2}},
                                 {Repetition::Barrier, {Schedule::Kind::Static, 3}},
                                 {Repetition::Barrier, {Schedule::Kind::Dynamic, 1}},
                                 {Repetition::Free, {Schedule::Kind::Static, 0}},
                                 {Repetition::Free, {Schedule::Kind::Static, 2}}};
  int runs = 0;
  for (const char* kernel : {"gather", "scatter", "gs", "multigather", "multiscatter"}) {
    for (const char* dtype : {"float32", "float64"}) {
      for (const std::int64_t prefetch : {0, 2, 20, 100}) {
        Request r(kernel);
        r.dtype = dtype;
        r.integers["count"] = 200;
        r.integers["prefetch"] = prefetch;
        // The outer pattern 0, 2, 5 spans six elements.
        if (r.form() == "multiscatter") r.indices["delta_scatter"] = {6};
        if (prefetch > 2) make_long(r);
        const auto problem = r.prepare(team_of(4));
        for (const RegisteredEntry& e : registered_entries()) {
          if (e.kernel != r.kernel || e.isa != "baseline" || dtype != std::string(e.dtype) ||
              e.index != r.index_dtype) {
            continue;
          }
          for (const Way& way : ways) {
            problem->fill(true);
            const std::vector<double> before = values(*problem, true);
            sample(team_of(4), e, *problem, 3, way.repetition, way.schedule);
            expect_moved(r, *problem, before);
            ++runs;
          }
        }
      }
    }
  }
  EXPECT_GE(runs, 5 * 2 * 4 * 2 * 6);
}

TEST(Workers, MatchASingleWorker) {
  for (const RegisteredEntry& e : entries_of({"spatter.scatter", "spatter.gs"})) {
    Request r(std::string(e.kernel).substr(8));
    r.dtype = e.dtype;
    r.index_dtype = e.index;
    r.integers["count"] = 100;
    std::vector<std::vector<double>> results;
    for (const Team* team : {&team_of(1), &team_of(4)}) {
      const auto problem = r.prepare(*team);
      problem->fill(true);
      sample(*team, e, *problem, 2, Repetition::Barrier, {Schedule::Kind::Static, 7});
      results.push_back(values(*problem, true));
    }
    // Every worker's dense buffer holds the same values by position.
    EXPECT_EQ(results[0], results[1]) << ::testing::PrintToString(e);
  }
}

}  // namespace
}  // namespace memkern
