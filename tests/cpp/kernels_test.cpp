// Every compiled body of the spatter and launch families, run serially, is compared with loops that
// follow the definition; and the registry of all bodies is checked.
#include "engine/registry.hpp"

#include "families/instructions/args.hpp"
#include "families/spatter/args.hpp"
#include "support.hpp"
#if defined(__aarch64__)
#include <sys/prctl.h>
#endif

namespace memkern {
namespace {

using namespace testing;

constexpr int kWorkers = 2;

struct Shape {
  std::int64_t length;
  std::int64_t wrap;
  std::int64_t count;
  std::vector<std::int64_t> gather_delta;
  std::vector<std::int64_t> scatter_delta;
  std::int64_t distance;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  // Lengths below, at and above the vectors of every instruction set, with tails.
  for (const std::int64_t length : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 67}) {
    all.push_back({length, 1, 5, {8}, {8}, 0});
    all.push_back({length, 3, 7, {1, 5, -2}, {2, -3, 4, 0}, 0});
  }
  all.push_back({8, 1, 1, {1}, {1}, 0});
  all.push_back({8, 1, 6, {0}, {0}, 0});
  all.push_back({8, 2, 6, {-4}, {-3}, 0});
  all.push_back({8, 1, 6, {-4}, {-3}, 0});
  all.push_back({16, 1, 6, {-5}, {7}, 0});
  all.push_back({16, 10, 6, {3}, {3}, 0});
  all.push_back({16, 1, 9, {5}, {6}, 1});
  all.push_back({16, 2, 9, {1, 5, -2}, {4, -4}, 4});
  all.push_back({3, 1, 4, {-7}, {9}, 4});
  // Divided by their indices.
  for (const std::int64_t distance : {0, 5, 40}) {
    all.push_back({67, 1, 1, {8}, {8}, distance});
    all.push_back({100, 2, 3, {1, 5, -2}, {2, -3}, distance});
  }
  return all;
}

// The bases of all instances, shifted by `origin` so that none is negative.
struct Walk {
  std::vector<std::int64_t> delta;
  std::vector<std::int64_t> prefix;
  std::vector<std::int64_t> bases;
  std::int64_t period = 0;
  std::int64_t origin = 0;

  Walk(const std::vector<std::int64_t>& deltas, std::int64_t count) : delta(deltas) {
    for (const std::int64_t d : deltas) {
      prefix.push_back(period);
      period += d;
    }
    std::int64_t base = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      bases.push_back(base);
      base += deltas[static_cast<std::size_t>(n) % deltas.size()];
    }
    origin = -*std::min_element(bases.begin(), bases.end());
    for (std::int64_t& b : bases) b += origin;
  }

  SpatterArgs::Walk args() const {
    return {origin, static_cast<std::int64_t>(delta.size()), delta.data(), prefix.data(), period};
  }
  std::int64_t highest() const { return *std::max_element(bases.begin(), bases.end()); }
};

// Unordered indices with some repetitions: the last store to an element must remain.
template <class I>
std::vector<I> scrambled(std::int64_t size, std::int64_t bound, std::int64_t seed) {
  std::vector<I> out;
  for (std::int64_t j = 0; j < size; ++j) {
    out.push_back(static_cast<I>((j * 7 + seed + j * j % 3) % bound));
  }
  return out;
}

template <class T, class I>
void check(const RegisteredEntry& entry, const Shape& shape) {
  const std::string kernel = std::string(entry.kernel).substr(8);
  const bool multi = kernel.rfind("multi", 0) == 0;
  const bool gathers = kernel == "gather" || kernel == "gs" || kernel == "multigather";
  const bool scatters = kernel == "scatter" || kernel == "gs" || kernel == "multiscatter";
  const bool uses_dense = kernel != "gs";
  const std::int64_t wrap = uses_dense ? shape.wrap : 1;

  const std::int64_t bound = 3 * shape.length + 1;
  const std::int64_t outer_size = shape.length + 5;
  const std::vector<I> outer = scrambled<I>(outer_size, bound, 2);
  const std::vector<I> gather = scrambled<I>(shape.length, multi ? outer_size : bound, 1);
  const std::vector<I> scatter = scrambled<I>(shape.length, multi ? outer_size : bound, 3);
  const Walk from(shape.gather_delta, shape.count);
  const Walk to(shape.scatter_delta, shape.count);

  const std::int64_t row = shape.length * wrap;
  const std::int64_t stride = row + 3;
  const std::vector<T> source = ascending<T>(from.highest() + bound, 1000);
  std::vector<T> target = ascending<T>(to.highest() + bound, 100000);
  std::vector<T> dense = ascending<T>((kWorkers - 1) * stride + row, 500000);

  Fenced<I> fenced_outer(outer);
  Fenced<I> fenced_gather(gather);
  Fenced<I> fenced_scatter(scatter);
  Fenced<T> fenced_source(source);
  Fenced<T> fenced_target(target);
  Fenced<T> fenced_dense(dense);
  const std::vector<std::int64_t> lines = {0, bound - 1};

  SpatterArgs args;
  args.length = shape.length;
  args.count = shape.count;
  args.wrap = wrap;
  args.distance = shape.distance;
  args.line_index = lines.data();
  args.lines = static_cast<std::int64_t>(lines.size());
  if (multi) args.outer_index = fenced_outer.data();
  if (gathers) {
    args.source = fenced_source.data();
    args.gather_index = fenced_gather.data();
    args.gather_walk = from.args();
  }
  if (scatters) {
    args.target = fenced_target.data();
    args.scatter_index = fenced_scatter.data();
    args.scatter_walk = to.args();
  }
  if (uses_dense) {
    args.dense = fenced_dense.data();
    args.dense_stride = stride;
  }
  // Walks that a body does not use must still be valid.
  const std::int64_t zero = 0;
  if (!gathers) args.gather_walk = {0, 1, &zero, &zero, 0};
  if (!scatters) args.scatter_walk = {0, 1, &zero, &zero, 0};

  const std::int64_t iterations = args.divided() ? args.blocks() : shape.count;
  const std::int64_t middle = iterations / 3;
  const Range parts[kWorkers] = {{0, middle}, {middle, iterations}};
  if (args.divided()) args.dense_stride = 0;
  for (int worker = 0; worker < kWorkers; ++worker) {
    Range instances = parts[worker];
    Range elements = {0, shape.length};
    if (args.divided()) {
      instances = {0, shape.count};
      elements.begin = parts[worker].begin * SpatterArgs::kBlock;
      elements.end = std::min(parts[worker].end * SpatterArgs::kBlock, shape.length);
    }
    for (std::int64_t n = instances.begin; n < instances.end; ++n) {
      const auto at = static_cast<std::size_t>(n);
      T* line = dense.data() + worker * args.dense_stride + n % wrap * shape.length;
      for (std::int64_t j = elements.begin; j < elements.end; ++j) {
        const auto i = static_cast<std::size_t>(j);
        const std::int64_t read = multi ? outer[static_cast<std::size_t>(gather[i])] : gather[i];
        const std::int64_t write = multi ? outer[static_cast<std::size_t>(scatter[i])] : scatter[i];
        const T value = gathers ? source[static_cast<std::size_t>(from.bases[at] + read)] : line[j];
        if (scatters) {
          target[static_cast<std::size_t>(to.bases[at] + write)] = value;
        } else {
          line[j] = value;
        }
      }
    }
    entry.body(&args, parts[worker], worker);
  }
  EXPECT_EQ(fenced_target.values(), target);
  EXPECT_EQ(fenced_dense.values(), dense);
  EXPECT_EQ(fenced_source.values(), source);
}

std::vector<RegisteredEntry> entries_from(const std::string& start) {
  return testing::entries_of(
      [&](const std::string& kernel) { return kernel.rfind(start, 0) == 0; });
}

class Spatter : public ::testing::TestWithParam<RegisteredEntry> {};

TEST_P(Spatter, FollowsTheDefinition) {
  const RegisteredEntry& e = GetParam();
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(::testing::Message() << "length " << shape.length << ", wrap " << shape.wrap
                                      << ", count " << shape.count << ", distance "
                                      << shape.distance << ", delta " << shape.gather_delta[0]);
    with_types(e, [&]<class T, class I>() { check<T, I>(e, shape); });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(AllEntries, Spatter, ::testing::ValuesIn(entries_from("spatter.")),
                         name_of);

class Launch : public ::testing::TestWithParam<RegisteredEntry> {};

TEST_P(Launch, ChangesNothing) {
  const std::vector<std::uint64_t> before = {1, 2, 3};
  const std::vector<std::uint64_t> args = before;
  GetParam().body(args.data(), {0, 3}, 0);
  EXPECT_EQ(args, before);
}

INSTANTIATE_TEST_SUITE_P(AllEntries, Launch, ::testing::ValuesIn(entries_from("launch.")), name_of);
INSTANTIATE_TEST_SUITE_P(BS0, Launch, ::testing::ValuesIn(entries_from("bs.bs0")), name_of);

// tests/families/test_kernels.py checks which combinations exist.
TEST(Registry, HasNoCombinationTwice) {
  using Key =
      std::tuple<std::string, std::string, std::string, std::string, std::string, int, std::string>;
  std::map<Key, int> seen;
  for (const RegisteredEntry& e : registered_entries()) {
    EXPECT_NE(e.body, nullptr);
    const int times =
        ++seen[{e.kernel, e.variant, e.isa, e.dtype, e.index, e.unroll, e.template_variant}];
    EXPECT_EQ(times, 1) << ::testing::PrintToString(e);
  }
}

// Sums, products and complex numbers of vectors, by what the instructions are defined to do.
TEST(Instructions, FollowTheirDefinitions) {
  constexpr std::int64_t kCount = 48;
  std::set<std::string> found;
  for (const RegisteredEntry& e : entries_of({"instructions.repeat"})) {
    const std::string form = e.template_variant;
    const std::string name = form.substr(0, form.find('/'));
    const std::map<std::string, double> changes = {
        {"add", 1}, {"fma", 1}, {"fcmla", 1}, {"whilelo", 0}, {"fcadd", -1}};
    if (changes.count(name) == 0) continue;
    std::vector<double> ends(InstructionArgs::kEnds), stored(InstructionArgs::kValues);
    std::vector<double> starts(InstructionArgs::kValues);
    for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<double>(3 * i);
    InstructionArgs args;
    args.ends = ends.data();
    args.starts = starts.data();
    args.stored = stored.data();
    e.body(&args, {0, kCount}, 0);
    const auto chains = static_cast<std::int64_t>(ends[InstructionArgs::kValues]);
    const auto lanes = static_cast<std::int64_t>(ends[InstructionArgs::kValues + 1]);
    const double steps = static_cast<double>(kCount / chains) * changes.at(name);
    for (std::int64_t i = 0; i < chains * lanes; ++i) {
      const auto at = static_cast<std::size_t>(i / lanes * InstructionArgs::kLanes + i % lanes);
      // x + i: the imaginary parts are in the odd lanes, and have the other sign.
      const double sign = name == "fcadd" && i % lanes % 2 == 1 ? -1 : 1;
      EXPECT_EQ(ends[at], starts[at] + sign * steps) << form << " " << e.isa << " " << i;
    }
    found.insert(name);
  }
  EXPECT_TRUE(found.count("add"));
  const std::vector<std::string> isas = supported_isas();
  const bool sve = std::find(isas.begin(), isas.end(), "sve") != isas.end();
  for (const char* name : {"fcadd", "fcmla", "whilelo"}) EXPECT_EQ(found.count(name), sve) << name;
}

#if defined(__x86_64__)
// Kernels that only write their output have non-temporal stores: kernels with contiguous outputs
// for every instruction set, kernels with indexed accesses as scalar stores for the baseline.
TEST(Registry, HasNonTemporalStoresWhereAKernelOnlyWrites) {
  std::map<std::string, std::set<std::string>> isas;
  for (const RegisteredEntry& e : registered_entries()) {
    if (std::string(e.variant) == "nt") isas[e.kernel].insert(e.isa);
  }
  const std::vector<std::string> built = supported_isas();
  for (const char* kernel :
       {"stream.copy", "stream.scale", "stream.add", "stream.triad", "raider.copy", "raider.scale",
        "raider.add", "raider.triad", "bs.bs1", "bs.bs6", "bs.bs7", "loops.init", "loops.init4",
        "loops.copy", "loops.triad", "loops.schoenauer", "loops.stencil"}) {
    for (const std::string& isa : built)
      EXPECT_TRUE(isas[kernel].count(isa)) << kernel << " " << isa;
  }
  for (const char* kernel : {"raider.gather_triad", "raider.scatter_copy", "raider.sg_add"}) {
    EXPECT_EQ(isas[kernel], std::set<std::string>{"baseline"}) << kernel;
  }
  for (const char* kernel : {"bs.bs2", "bs.bs3", "bs.bs5", "bs.bs8", "loops.update", "loops.daxpy",
                             "loops.nstream", "loops.sum", "raider.central_copy"}) {
    EXPECT_EQ(isas.count(kernel), 0U) << kernel;
  }
}

// `nta` is a hint for loads; `nt` are stores without write-allocate.
TEST(Registry, NamesHintsForLoadsUnlikeNonTemporalStores) {
  std::map<std::string, std::set<std::string>> kernels;
  std::set<std::string> isas;
  for (const RegisteredEntry& e : registered_entries()) {
    kernels[e.variant].insert(e.kernel);
    isas.insert(e.isa);
  }
  std::set<std::string> hinted = {"loops.matvec"};
  // Products with sparse matrices have no simd variant for the baseline.
  if (isas.size() > 1) hinted.insert({"spmv.crs", "spmv.sell"});
  EXPECT_EQ(kernels["nta"], hinted);
  for (const std::string& kernel : kernels["nta"]) {
    EXPECT_EQ(kernels["nt"].count(kernel), 0U) << kernel;
  }
}
#endif

TEST(Registry, HasTheVectorSizeOfEachInstructionSet) {
#if defined(__aarch64__)
  const int sve = prctl(PR_SVE_GET_VL);
  const int sve_B = sve < 0 ? 0 : sve & PR_SVE_VL_LEN_MASK;
#endif
  const std::map<std::string, int> known = {
#if defined(__x86_64__)
    {"avx512", 64},
    {"avx2", 32},
    {"sse4", 16},
#elif defined(__aarch64__)
    {"sve", sve_B},
    {"sve2", sve_B},
    {"neon", 16},
#endif
    {"baseline", 16}
  };
  for (const auto& [isa, bytes] : known) EXPECT_EQ(vector_size(isa), bytes) << isa;
  for (const RegisteredEntry& e : registered_entries()) EXPECT_EQ(known.count(e.isa), 1U) << e.isa;
}

TEST(Registry, SupportsTheBaselineOnEveryMachine) {
  const std::vector<std::string> isas = supported_isas();
  EXPECT_EQ(isas.back(), "baseline");
  EXPECT_EQ(std::set<std::string>(isas.begin(), isas.end()).size(), isas.size());
}

}  // namespace
}  // namespace memkern
