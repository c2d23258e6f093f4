// Streaming kernels on an emulated GPU, compared with the processor's scalar bodies: all entries,
// parts of ranges, block sizes and alignments of arrays; timers, graphs and repeated reductions.
#include <cuda_runtime.h>

#include "backends/cuda/device.hpp"
#include "gpu/divisor.hpp"
#include "support.hpp"

namespace memkern {

inline void PrintTo(const DeviceEntry& e, std::ostream* out) {
  PrintTo(RegisteredEntry{e, "device"}, out);
}

namespace {

using namespace testing;

constexpr double kUlps = 128.0;  // tolerance of reductions, as in their specs

Device& device() { return cuda::device(0); }

bool is_streaming(const std::string& kernel) {
  const std::string family = kernel.substr(0, kernel.find('.'));
  return std::set<std::string>{"launch", "stream", "raider", "bs", "loops"}.count(family) == 1;
}

std::vector<DeviceEntry> device_entries() {
  std::vector<DeviceEntry> all;
  for (const DeviceEntry& e : device().entries()) {
    if (is_streaming(e.kernel)) all.push_back(e);
  }
  return all;
}

DeviceEntry entry_of(const std::string& kernel, const std::string& variant, int unroll = 0,
                     const std::string& dtype = "float64") {
  for (const DeviceEntry& e : device_entries()) {
    if (e.kernel == kernel && e.variant == variant && e.unroll == unroll && e.dtype == dtype) {
      return e;
    }
  }
  ADD_FAILURE() << kernel << " " << variant << " by " << unroll << " " << dtype;
  return {};
}

const RegisteredEntry& host_entry(const Entry& e) {
  return *find_entry(e.kernel, "scalar", "baseline", e.dtype, e.index);
}

bool reduces(const Entry& e) { return host_entry(e).finish != nullptr; }

// Sizes of a case; a kernel uses only some of them.
struct Size {
  std::int64_t elements;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t nodes;          // global nodes
  std::int64_t most_of_a_row;  // local nodes
};

class Case {
 public:
  Case(const Entry& e, const Size& size)
      : host_(host_entry(e)), given_{e.kernel, e.dtype, e.index, {}, {}, {}} {
    given_.integers = {{"elements", size.elements},
                       {"rows", size.rows},
                       {"columns", size.columns},
                       {"prefetch", 0}};
    given_.numbers = {{"alpha", streams_of(e.kernel) == 0 ? 1.0 : 3.0}, {"beta", -0.5}};
    const std::string kernel = e.kernel;
    if (kernel == "bs.bs6" || kernel == "bs.bs7" || kernel == "bs.bs8") {
      mesh(size, kernel == "bs.bs7");
    } else {
      for (int k = 0; k < e.indices; ++k) {
        given_.indices["IDX" + std::to_string(k + 1)] = permutation(size.elements, k);
      }
    }
  }

  void set(const char* name, std::int64_t value) { given_.integers[name] = value; }

  std::unique_ptr<Problem> prepare_here() const { return given_.prepare(team_of(1)); }
  std::unique_ptr<Problem> prepare_there(std::int64_t offset_B = 0) const {
    // New memory: a buffer from the pool could be larger.
    Arena::release_pool();
    return given_.prepare(team_of(1), {Pages::Default, {}, offset_B, &device(), 1});
  }

  void run_here(Problem& problem, Range range) const {
    host_.body(problem.args(), range, 0);
    if (host_.finish != nullptr) host_.finish(problem.args(), 1);
    problem.mark_written();
  }

 private:
  // Rows of some entries in pseudo-random order; some local nodes belong to no global node.
  void mesh(const Size& size, bool scatters) {
    Integers starts = {0};
    for (std::int64_t g = 0; g < size.nodes; ++g) {
      starts.push_back(starts.back() + scattered(g, 5, size.most_of_a_row + 1));
    }
    if (starts.back() == 0) ++starts.back();
    const std::int64_t entries = starts.back();
    const std::int64_t local = entries + size.nodes / 7;
    Integers columns = permutation(local, 3);
    columns.resize(at(entries));
    given_.integers["local_nodes"] = local;
    given_.integers["global_nodes"] = size.nodes;
    if (!scatters) {
      given_.indices = {{"row_starts", starts}, {"columns", columns}};
      return;
    }
    Integers& ids = given_.indices["ids"];
    ids.assign(at(local), -1);
    for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
      for (std::int64_t j = starts[g]; j < starts[g + 1]; ++j) {
        ids[at(columns[at(j)])] = static_cast<std::int64_t>(g);
      }
    }
  }

  const RegisteredEntry& host_;
  Given given_;
};

double run(Problem& problem, const DeviceEntry& e, Range range, int block,
           std::int64_t invocations = 1, Timer timer = Timer::Host) {
  const double seconds =
      device().sample({{e.launch, problem.args(), range, block}}, invocations, timer, nullptr);
  problem.mark_written();
  return seconds;
}

double result_of(const Problem& problem) { return problem.peek(problem.array("result"), 0); }

// The bytes of all arrays, and the result of a reduction.
struct Content {
  explicit Content(const Problem& problem) { read(problem); }
  // Memory that this has already is used again.
  void read(const Problem& problem) {
    std::size_t number = 0;
    for (const Array& a : problem.arrays()) {
      if (a.name == "result") {
        result = result_of(problem);
        continue;
      }
      if (number == arrays.size()) arrays.emplace_back();
      arrays[number].resize(at(a.rows * a.columns * dtype_size(a.type)));
      problem.copy_out(a, arrays[number++].data());
    }
  }
  std::vector<std::vector<std::byte>> arrays;
  double result = 0.0;
};

::testing::AssertionResult is_near(double got, double wanted, const std::string& dtype) {
  const double rounding = dtype == "float32" ? std::numeric_limits<float>::epsilon()
                                             : std::numeric_limits<double>::epsilon();
  if (got == wanted) return ::testing::AssertionSuccess();
  if (std::abs(got - wanted) <= kUlps * rounding * std::max(std::abs(wanted), 1.0)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << got << " is not near " << wanted;
}

class Streaming : public ::testing::TestWithParam<DeviceEntry> {};

std::string name_of(const ::testing::TestParamInfo<DeviceEntry>& tried) {
  return testing::name_of(
      ::testing::TestParamInfo<RegisteredEntry>({tried.param, "device"}, tried.index));
}

// Operations and their order on an element are the same as on the processor: only results of
// reductions may differ.
TEST_P(Streaming, MatchesTheProcessor) {
  const DeviceEntry& e = GetParam();
  // Arrays that fill their memory, and others; blocks with and without work; more elements than all
  // blocks of a reduction process at once, even with eight vectors per thread.
  constexpr Size kSizes[] = {{1, 3, 3, 1, 1},          {2, 3, 4, 2, 8},
                             {3, 4, 3, 5, 2},          {7, 5, 9, 33, 8},
                             {64, 12, 17, 100, 1},     {257, 13, 70, 257, 8},
                             {1030, 40, 301, 1030, 2}, {20011, 271, 23, 2000, 8}};
  int number = 0;
  for (const Size& size : kSizes) {
    const Case c(e, size);
    const auto here = c.prepare_here();
    const std::int64_t n = here->count();
    std::set<std::pair<std::int64_t, std::int64_t>> ranges = {{0, n}, {n / 3, n - n / 5}};
    if (size.elements < 2000) {
      ranges.insert({{n / 2, n / 2}, {std::min<std::int64_t>(1, n), n}});
      if (n > 3) ranges.insert({3, n - 2});
    }
    std::vector<std::pair<Range, Content>> wanted;
    for (const auto& [begin, end] : ranges) {
      here->fill(true);
      c.run_here(*here, {begin, end});
      wanted.emplace_back(Range{begin, end}, Content(*here));
    }
    for (const std::int64_t offset_B : {0, 8, 16}) {
      const auto there = c.prepare_there(offset_B);
      Content found(*there);
      for (const int block : {1, 32, 100, 256, 1024}) {
        // One size has all pairs of a block and an offset, the others together.
        if (size.elements != 257 && 8 * (number++ % 3) != offset_B) continue;
        // What only reductions do.
        if (size.elements > 2000 && block != 256 && !reduces(e)) continue;
        for (const auto& [range, content] : wanted) {
          there->fill(true);
          run(*there, e, range, block);
          found.read(*there);
          ASSERT_EQ(found.arrays.size(), content.arrays.size());
          for (std::size_t k = 0; k < found.arrays.size(); ++k) {
            // Not ASSERT_EQ, which would print thousands of bytes.
            ASSERT_TRUE(found.arrays[k] == content.arrays[k])
                << "array " << k << " of " << size.elements << ", " << range.begin << " to "
                << range.end << " of " << n << ", block " << block << ", offset " << offset_B;
          }
          ASSERT_TRUE(is_near(found.result, content.result, e.dtype))
              << size.elements << ", " << range.begin << " to " << range.end << " of " << n
              << ", block " << block << ", offset " << offset_B;
        }
      }
    }
    ++number;
  }
}

INSTANTIATE_TEST_SUITE_P(AllEntries, Streaming, ::testing::ValuesIn(device_entries()), name_of);

constexpr Size kSome = {5003, 12, 9, 40, 3};

TEST(Divisors, DivideLikeTheProcessor) {
  const std::int64_t numbers[] = {0,
                                  1,
                                  2,
                                  3,
                                  7,
                                  255,
                                  256,
                                  1'000'003,
                                  std::int64_t{1} << 31,
                                  (std::int64_t{1} << 40) - 1,
                                  kMax - 1,
                                  kMax};
  for (const std::int64_t value : numbers) {
    if (value == 0) continue;
    const gpu::Divisor divisor(value);
    for (const std::int64_t number : numbers) {
      for (const std::int64_t near : {number / value * value, number / value * value - 1}) {
        for (const std::int64_t n : {number, near}) {
          if (n < 0) continue;
          ASSERT_EQ(divisor.quotient(n), n / value) << n << " / " << value;
        }
      }
    }
  }
}

TEST(Timers, RunAsManyInvocationsAsRequested) {
  const DeviceEntry e = entry_of("loops.daxpy", "simt");
  const Case c(e, kSome);
  const auto here = c.prepare_here();
  const auto there = c.prepare_there();
  const Range all{0, here->count()};
  // Around the number of invocations in a graph, and more than two graphs have.
  for (const std::int64_t invocations : {1, 63, 64, 65, 128, 150}) {
    here->fill(true);
    for (std::int64_t k = 0; k < invocations; ++k) c.run_here(*here, all);
    for (const Timer timer : {Timer::Host, Timer::Events, Timer::Graph}) {
      there->fill(true);
      run(*there, e, all, e.threads, invocations, timer);
      EXPECT_EQ(Content(*there).arrays, Content(*here).arrays) << invocations;
    }
  }
}

// Results do not depend on the block size of the previous invocation.
TEST(Reductions, AreReproducible) {
  for (const DeviceEntry& e : device_entries()) {
    if (!reduces(e) || std::string(e.variant) != "one-kernel") continue;
    const DeviceEntry other = entry_of(e.kernel, "two-kernel", e.unroll, e.dtype);
    const auto problem = Case(e, kSome).prepare_there();
    const Range all{0, problem->count()};
    std::map<int, double> first;
    for (int time = 0; time < 3; ++time) {
      for (const int block : {1, 100, 256, 1024}) {
        for (const DeviceEntry& tried : {e, other}) {
          problem->fill(true);
          run(*problem, tried, all, block);
          const double result = result_of(*problem);
          EXPECT_EQ(first.emplace(block, result).first->second, result)
              << ::testing::PrintToString(tried) << ", block " << block;
        }
      }
    }
  }
}

TEST(Reductions, HaveAsManyBlocksAsRunAtATimeOrAsRequested) {
  for (const DeviceEntry& e : device_entries()) {
    if (!reduces(e) || e.unroll != 0 || std::string(e.variant) != "one-kernel") continue;
    const std::pair<std::int64_t, std::int64_t> known[] = {
        {0, emulated::kResidentBlocks}, {1, 1}, {512, 512}, {8192, 8192}};
    for (const auto& [requested, blocks] : known) {
      Case c(e, {4000, 3, 3, 1, 1});
      c.set("blocks", requested);
      const auto there = c.prepare_there();
      const auto here = c.prepare_here();
      const Range all{0, 4000};
      // At most 4 elements: a thread loads 16 bytes at a time.
      const std::int64_t lanes = streams_of(e.kernel) == 0           ? 1
                                 : std::string(e.dtype) == "float32" ? 4
                                                                     : 2;
      c.run_here(*here, all);
      run(*there, e, all, 1);
      const std::int64_t most = (4000 + lanes - 1) / lanes;
      EXPECT_EQ(emulated::counts().blocks, std::min(blocks, most)) << ::testing::PrintToString(e);
      EXPECT_TRUE(is_near(result_of(*there), result_of(*here), e.dtype));
    }
  }
}

TEST(Meshes, HaveAsManyNodesInABlockAsRequested) {
  for (const char* dtype : {"float64", "float32"}) {
    const DeviceEntry e = entry_of("bs.bs6", "balanced", 0, dtype);
    const std::int64_t value_B = std::string(dtype) == "float64" ? 8 : 4;
    std::map<std::int64_t, std::int64_t> blocks;
    for (const std::int64_t nodes : {0, 1, 64, 512, 1500, 6144}) {
      Case c(e, {1, 3, 3, 4000, 8});
      if (nodes > 0) c.set("nodes_per_block", nodes);
      const auto there = c.prepare_there();
      const auto here = c.prepare_here();
      const Range all{0, 4000};
      here->fill(true);
      there->fill(true);
      c.run_here(*here, all);
      run(*there, e, all, 32);
      EXPECT_TRUE(Content(*there).arrays == Content(*here).arrays) << nodes;
      blocks[nodes] = emulated::counts().blocks;
      // 32 threads store 64 values at a time.
      const std::int64_t staged = (std::max<std::int64_t>(nodes, 1) + 63) / 64 * 64;
      EXPECT_EQ(emulated::counts().shared_B, (nodes == 0 ? 512 : staged) * value_B) << nodes;
    }
    EXPECT_EQ(blocks[1], 4000);
    EXPECT_EQ(blocks[0], blocks[512]);
    EXPECT_GT(blocks[64], 3 * blocks[512]);
    EXPECT_GT(blocks[512], 2 * blocks[1500]);
    EXPECT_GT(blocks[1500], 3 * blocks[6144]);
  }
}

TEST(Reductions, FindTheLargestAtEveryPosition) {
  constexpr std::int64_t kFew = 150;
  for (const DeviceEntry& e : device_entries()) {
    const std::string kernel = e.kernel;
    if (kernel != "loops.load" && kernel != "loops.load4") continue;
    const auto problem = Case(e, {kFew, 3, 3, 1, 1}).prepare_there(8);
    std::vector<const Array*> arrays;
    for (const Array& a : problem->arrays()) {
      if (a.name == "result") continue;
      arrays.push_back(&a);
      for (std::int64_t i = 0; i < kFew; ++i) problem->poke(a, i, -5.0);
    }
    for (const Array* a : arrays) {
      for (std::int64_t i = 0; i < kFew; ++i) {
        problem->poke(*a, i, -2.0);
        run(*problem, e, {0, kFew}, 32);
        ASSERT_EQ(result_of(*problem), -2.0) << ::testing::PrintToString(e) << " " << i;
        problem->poke(*a, i, -5.0);
      }
    }
    run(*problem, e, {0, kFew}, 32);
    EXPECT_EQ(result_of(*problem), -5.0) << ::testing::PrintToString(e);
  }
}

// A float32 sum of these values would lose their part beyond 1 in half of the additions.
TEST(Reductions, StayAccurateForManyElements) {
  const float value = 1.0F + std::ldexp(1.0F, -13) - std::ldexp(1.0F, -20);
  for (const char* variant : {"two-kernel", "one-kernel"}) {
    const DeviceEntry e = entry_of("loops.sum", variant, 1, "float32");
    // Blocks have one thread each, which loads four values at once.
    constexpr std::int64_t kMany = std::int64_t{4096} * 512 * 4;
    const auto problem = Case(e, {kMany, 3, 3, 1, 1}).prepare_there();
    const std::vector<float> values(at(kMany), value);
    problem->copy_in("a", values.data());
    run(*problem, e, {0, kMany}, 1);
    EXPECT_TRUE(is_near(result_of(*problem), static_cast<double>(value) * kMany, e.dtype));
  }
}

TEST(Reductions, CountIterationsWithoutArrays) {
  for (const DeviceEntry& e : device_entries()) {
    if (std::string(e.kernel) != "loops.peakflops") continue;
    // More iterations than a thread adds up before it starts another sum.
    constexpr std::int64_t kMany = 9'000'001;
    const auto problem = Case(e, {kMany, 3, 3, 1, 1}).prepare_there();
    run(*problem, e, {1, kMany}, 1);
    EXPECT_EQ(result_of(*problem), kMany - 1.0) << ::testing::PrintToString(e);
  }
}

}  // namespace
}  // namespace memkern
