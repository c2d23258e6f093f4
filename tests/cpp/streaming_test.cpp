// Every compiled body that works element by element, with indices or without, is compared with its
// definition: run serially on arrays that end at an inaccessible page, have various alignments and
// are divided among two workers.
#include "families/streaming/args.hpp"

#include <deque>

#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

constexpr double kAlpha = 3.0;
constexpr double kBeta = -2.0;
constexpr int kWorkers = 2;

// Element of an array that an iteration accesses: the element with the iteration's number, the
// first one, or the one given by an index array (from 0).
constexpr int kHere = -1;
constexpr int kFirst = -2;

struct Kernel {
  // Applies the operation to the elements of an iteration; a reduction returns its term.
  double (*definition)(double* x);
  std::vector<int> places;  // by array
  bool largest = false;     // reduces to the largest term, not to the sum
  double alpha = kAlpha;
};

double copy(double* x) { return x[0] = x[1]; }
double scale(double* x) { return x[0] = kAlpha * x[1]; }
double add(double* x) { return x[0] = x[1] + x[2]; }
double triad(double* x) { return x[0] = x[1] + kAlpha * x[2]; }
double dot(double* x) { return x[0] * x[1]; }

const std::map<std::string, Kernel>& kernels() {
  const std::vector<int> one(1, kHere);
  const std::vector<int> two(2, kHere);
  const std::vector<int> three(3, kHere);
  const std::vector<int> four(4, kHere);
  static const std::map<std::string, Kernel> all = {
      {"stream.copy", {copy, two}},
      {"stream.scale", {scale, two}},
      {"stream.add", {add, three}},
      {"stream.triad", {triad, three}},
      {"raider.copy", {copy, two}},
      {"raider.scale", {scale, two}},
      {"raider.add", {add, three}},
      {"raider.triad", {triad, three}},
      {"raider.gather_copy", {copy, {kHere, 0}}},
      {"raider.gather_scale", {scale, {kHere, 0}}},
      {"raider.gather_add", {add, {kHere, kHere, 0}}},
      {"raider.gather_triad", {triad, {kHere, kHere, 0}}},
      {"raider.gather_add@release", {add, {kHere, 0, 1}}},
      {"raider.gather_triad@release", {triad, {kHere, 0, 1}}},
      {"raider.scatter_copy", {copy, {0, kHere}}},
      {"raider.scatter_scale", {scale, {0, kHere}}},
      {"raider.scatter_add", {add, {0, kHere, kHere}}},
      {"raider.scatter_triad", {triad, {0, kHere, kHere}}},
      {"raider.sg_copy", {copy, {0, 1}}},
      {"raider.sg_scale", {scale, {0, 1}}},
      {"raider.sg_add", {add, {0, 1, 2}}},
      {"raider.sg_triad", {triad, {0, 1, 2}}},
      {"raider.central_copy", {copy, {kFirst, kFirst}}},
      {"raider.central_scale", {scale, {kFirst, kFirst}}},
      {"raider.central_add", {add, {kFirst, kFirst, kFirst}}},
      {"raider.central_triad", {triad, {kFirst, kFirst, kFirst}}},
      {"bs.bs1", {copy, two}},
      {"bs.bs2", {[](double* x) { return x[0] = kAlpha * x[1] + kBeta * x[0]; }, two}},
      {"bs.bs3", {[](double* x) { return x[0] * x[0]; }, one}},
      {"bs.bs4", {dot, two}},
      {"bs.bs5",
       {[](double* x) {
          x[0] += kAlpha * x[2];
          x[1] -= kAlpha * x[3];
          return x[1] * x[1];
        },
        four}},
      {"bs.bs5@release",
       {[](double* x) {
          x[0] -= kAlpha * x[1];
          return x[0] * x[0];
        },
        two}},
      {"loops.load", {[](double* x) { return x[0]; }, one, true}},
      {"loops.load4", {[](double* x) { return *std::max_element(x, x + 4); }, four, true}},
      {"loops.sum", {[](double* x) { return x[0]; }, one}},
      {"loops.dot", {dot, two}},
      {"loops.peakflops", {[](double*) { return 1.0; }, {}, false, 1.0}},
      {"loops.init", {[](double* x) { return x[0] = kAlpha; }, one}},
      {"loops.init4", {[](double* x) { return x[0] = x[1] = x[2] = x[3] = kAlpha; }, four}},
      {"loops.copy", {copy, two}},
      {"loops.update", {[](double* x) { return x[0] *= kAlpha; }, one}},
      {"loops.daxpy", {[](double* x) { return x[0] += kAlpha * x[1]; }, two}},
      {"loops.triad", {triad, three}},
      {"loops.nstream", {[](double* x) { return x[0] += x[1] + kAlpha * x[2]; }, three}},
      {"loops.schoenauer", {[](double* x) { return x[0] = x[1] + x[2] * x[3]; }, four}},
  };
  return all;
}

const Kernel& kernel_of(const RegisteredEntry& e) { return kernels().at(e.kernel); }

std::size_t indices_of(const Kernel& kernel) {
  int highest = -1;
  for (const int place : kernel.places) highest = std::max(highest, place);
  return static_cast<std::size_t>(highest + 1);
}

// Contents of the index arrays.
enum class Pattern { Permutation, Repeats, OnePlace };

struct Trial {
  std::int64_t n;
  std::int64_t begin;  // of the first worker's range
  std::int64_t cut;    // begin of the second worker's range
  std::int64_t end;
  std::int64_t distance = 0;  // of the prefetch
  std::int64_t shift_B = 0;   // from one array's alignment to the next one's
  Pattern pattern = Pattern::Permutation;
};

template <class I>
std::vector<I> index_array(const Trial& t, std::int64_t salt) {
  if (t.pattern == Pattern::Permutation) return permutation<I>(t.n, salt);
  const std::int64_t places = t.pattern == Pattern::Repeats ? t.n / 3 + 1 : 1;
  std::vector<I> all;
  for (std::int64_t i = 0; i < t.n; ++i) {
    all.push_back(static_cast<I>(t.n - 1 - scattered(i, salt, places)));
  }
  return all;
}

template <class T, class I>
void compare(const RegisteredEntry& entry, const Trial& t) {
  const Kernel& kernel = kernel_of(entry);
  const std::size_t streams = kernel.places.size();
  // Small enough that every sum and product is exact in either precision, in any order.
  const std::int64_t bound = entry.finish == nullptr ? 2048 : t.n < 1000 ? 32 : 4;
  std::vector<std::vector<T>> values;
  std::deque<Fenced<T>> arrays;  // a deque, as its elements cannot be moved
  StreamingArgs args;
  for (std::size_t k = 0; k < streams; ++k) {
    const auto more = static_cast<std::int64_t>(k) * t.shift_B / std::int64_t{sizeof(T)};
    values.push_back(scattered_values<T>(t.n + more, static_cast<std::int64_t>(k), bound));
    args.stream[k] = arrays.emplace_back(values[k]).data();
  }
  std::vector<std::vector<I>> indices;
  std::deque<Fenced<I>> index_arrays;
  for (std::size_t k = 0; k < indices_of(kernel); ++k) {
    indices.push_back(index_array<I>(t, static_cast<std::int64_t>(k) + 7));
    args.index[k] = index_arrays.emplace_back(indices[k]).data();
  }
  std::vector<double> partial(kWorkers * StreamingArgs::kPartialStride);
  double result = -1.0;
  args.streams = static_cast<int>(streams);
  args.rows = t.n;
  args.distance = t.distance;
  args.alpha = kernel.alpha;
  args.beta = kBeta;
  args.partial = partial.data();
  args.result = &result;
  if (entry.finish != nullptr) entry.finish(&args, kWorkers);
  const std::vector<double> ready = partial;
  entry.body(&args, {t.begin, t.cut}, 0);
  entry.body(&args, {t.cut, t.end}, 1);
  if (entry.finish != nullptr) entry.finish(&args, kWorkers);

  double wanted = kernel.largest ? -std::numeric_limits<double>::infinity() : 0.0;
  for (auto i = static_cast<std::size_t>(t.begin); i < static_cast<std::size_t>(t.end); ++i) {
    const auto at = [&](std::size_t k) {
      const int place = kernel.places[k];
      return place == kHere ? i
             : place == kFirst
                 ? 0
                 : static_cast<std::size_t>(indices[static_cast<std::size_t>(place)][i]);
    };
    double x[StreamingArgs::kMaxStreams] = {};
    for (std::size_t k = 0; k < streams; ++k) x[k] = static_cast<double>(values[k][at(k)]);
    const double term = kernel.definition(x);
    wanted = kernel.largest ? std::max(wanted, term) : wanted + term;
    for (std::size_t k = 0; k < streams; ++k) values[k][at(k)] = static_cast<T>(x[k]);
  }
  for (std::size_t k = 0; k < streams; ++k) EXPECT_EQ(arrays[k].values(), values[k]) << k;
  for (std::size_t k = 0; k < indices.size(); ++k) EXPECT_EQ(index_arrays[k].values(), indices[k]);
  if (entry.finish != nullptr) {
    EXPECT_EQ(result, wanted);
    EXPECT_EQ(partial, ready);
  }
  if (::testing::Test::HasFailure()) {
    FAIL() << t.begin << " to " << t.cut << " to " << t.end << " of " << t.n << ", distance "
           << t.distance << ", shift " << t.shift_B << ", pattern " << static_cast<int>(t.pattern);
  }
}

class Streaming : public ::testing::TestWithParam<RegisteredEntry> {
 protected:
  void follows(const Trial& trial) const {
    const std::string dtype = GetParam().dtype;
    if (dtype == "int64") return follows_in<std::int64_t>(trial);
    if (dtype == "int32") return follows_in<std::int32_t>(trial);
    with_types(GetParam(), [&]<class T, class I>() { compare<T, I>(GetParam(), trial); });
  }

 private:
  template <class T>
  void follows_in(const Trial& trial) const {
    if (std::string(GetParam().index) == "int32")
      return compare<T, std::int32_t>(GetParam(), trial);
    compare<T, std::int64_t>(GetParam(), trial);
  }
};

TEST_P(Streaming, FollowsItsDefinition) {
  const bool indexed = *GetParam().index != '\0';
  std::vector<Pattern> patterns = {Pattern::Permutation};
  if (indexed) patterns = {Pattern::Permutation, Pattern::Repeats, Pattern::OnePlace};
  // Sizes around the vectors of every instruction set, and beyond sixteen of the longest vectors.
  for (const std::int64_t n : {1, 2, 5, 8, 15, 17, 33, 64, 67, 129, 263, 700}) {
    for (const Pattern pattern : patterns) {
      // Prefetches may go past the ends of arrays; index arrays must not be read there.
      for (const auto& [distance, shift_B] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                              {0, 16},
                                              {5, 8},
                                              {n, 0},
                                              {1'000'000, 16}}) {
        follows({n, 0, n, n, distance, shift_B, pattern});
        follows({n, 0, n / 3, n, distance, shift_B, pattern});
        follows({n, n / 4, n / 2, n - 1, distance, shift_B, pattern});
        if (n > 3) follows({n, 3, 3, n, distance, shift_B, pattern});
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllEntries, Streaming,
                         ::testing::ValuesIn(entries_of([](const std::string& kernel) {
                           return kernels().count(kernel) == 1;
                         })),
                         name_of);

std::vector<RegisteredEntry> reductions(bool largest) {
  std::vector<RegisteredEntry> all = entries_of([&](const std::string& kernel) {
    return kernels().count(kernel) == 1 && kernels().at(kernel).largest == largest;
  });
  std::erase_if(all, [](const RegisteredEntry& e) { return e.finish == nullptr; });
  return all;
}

// The result of a reduction over all of `arrays`, by two workers.
template <class T>
double reduce(const RegisteredEntry& e, std::deque<Fenced<T>>& arrays, std::int64_t n) {
  std::vector<double> partial(kWorkers * StreamingArgs::kPartialStride);
  double result = -1.0;
  StreamingArgs args;
  for (Fenced<T>& array : arrays) args.stream[args.streams++] = array.data();
  args.alpha = kernel_of(e).alpha;
  args.partial = partial.data();
  args.result = &result;
  e.finish(&args, kWorkers);  // initialises the partial results
  e.body(&args, {0, n / 2}, 0);
  e.body(&args, {n / 2, n}, 1);
  e.finish(&args, kWorkers);
  return result;
}

// More elements than a block of 2^13 vectors has with the longest vectors.
constexpr std::int64_t kBlock = 140'001;

class Largest : public Streaming {};

TEST_P(Largest, CombinesItsBlocks) { follows({kBlock, 1, kBlock, kBlock}); }

TEST_P(Largest, IsFoundAtEveryPosition) {
  constexpr std::int64_t kFew = 300;  // more than sixteen of the longest vectors
  with_types(GetParam(), [&]<class T, class>() {
    std::deque<Fenced<T>> arrays;
    for (int k = 0; k < streams_of(GetParam().kernel); ++k) {
      arrays.emplace_back(std::vector<T>(kFew, T(-5)));
    }
    for (Fenced<T>& array : arrays) {
      for (std::int64_t i = 0; i < kFew; ++i) {
        array.data()[i] = T(-2);
        ASSERT_EQ(reduce(GetParam(), arrays, kFew), -2.0) << i;
        array.data()[i] = T(-5);
      }
    }
    EXPECT_EQ(reduce(GetParam(), arrays, kFew), -5.0);
  });
}

INSTANTIATE_TEST_SUITE_P(AllEntries, Largest, ::testing::ValuesIn(reductions(true)), name_of);

class Sums : public Streaming {};

TEST_P(Sums, CombineTheirBlocks) { follows({kBlock, 1, kBlock, kBlock}); }

TEST_P(Sums, StayAccurateForManyElements) {
  constexpr std::int64_t kMany = 300'001;
  const RegisteredEntry& e = GetParam();
  with_types(e, [&]<class T, class>() {
    std::deque<Fenced<T>> arrays;
    double x[StreamingArgs::kMaxStreams];
    std::fill_n(x, StreamingArgs::kMaxStreams, double{T(0.1)});
    for (int k = 0; k < streams_of(e.kernel); ++k) {
      arrays.emplace_back(std::vector<T>(kMany, T(0.1)));
    }
    const double wanted = kMany * kernel_of(e).definition(x);
    // One rounding for each value that an accumulator adds: a block has 2^13 values per lane.
    const int accumulators = e.unroll != 0 ? e.unroll : std::string(e.variant) == "auto" ? 2 : 8;
    const double roundings = std::ldexp(1.0, 13) / accumulators;
    const double rounding = std::numeric_limits<T>::epsilon() / 2;
    EXPECT_NEAR(reduce(e, arrays, kMany), wanted, wanted * roundings * rounding);
  });
}

INSTANTIATE_TEST_SUITE_P(AllEntries, Sums, ::testing::ValuesIn(reductions(false)), name_of);

// The tables of this and other tests agree with the entries.
TEST(Registry, HasNoStreamingKernelWithoutADefinition) {
  const std::set<std::string> elsewhere = {"bs.bs0", "bs.bs6",        "bs.bs7",
                                           "bs.bs8", "loops.stencil", "loops.matvec"};
  for (const RegisteredEntry& e : registered_entries()) {
    const std::string kernel = e.kernel;
    const std::string family = kernel.substr(0, kernel.find('.'));
    if (std::set<std::string>{"stream", "raider", "bs", "loops"}.count(family) == 0) continue;
    if (elsewhere.count(kernel) == 1) continue;
    ASSERT_EQ(kernels().count(kernel), 1U) << kernel;
    EXPECT_EQ(streams_of(kernel), std::ssize(kernel_of(e).places)) << kernel;
    EXPECT_EQ(e.indices, static_cast<int>(indices_of(kernel_of(e)))) << kernel;
    EXPECT_EQ(*e.index == '\0', e.indices == 0) << kernel;
  }
}

}  // namespace
}  // namespace memkern
