// Sparse matrix-vector products: every body on arrays that end at an inaccessible page, the layout
// in chunks, and whole cases with several workers, in which the thread sanitizer detects races.
#include "families/spmv/args.hpp"

#include "families/spmv/sell.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

using Numbers = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Compressed rows, with integers small enough that no sum is rounded.
struct Matrix {
  std::int64_t columns = 0;
  Integers starts{0};
  Integers index;
  Numbers values;

  std::int64_t rows() const { return std::ssize(starts) - 1; }
  std::int64_t length(std::int64_t row) const { return starts[at(row + 1)] - starts[at(row)]; }

  void add_row(const Integers& its_columns) {
    for (const std::int64_t c : its_columns) {
      index.push_back(c);
      values.push_back(static_cast<double>(scattered(std::ssize(index), 7, 9) + 1));
    }
    starts.push_back(std::ssize(index));
  }

  Matrix transposed() const {
    Matrix t;
    t.columns = rows();
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = 0; r < rows(); ++r) {
        for (std::int64_t k = starts[at(r)]; k < starts[at(r + 1)]; ++k) {
          if (index[at(k)] != c) continue;
          t.index.push_back(r);
          t.values.push_back(values[at(k)]);
        }
      }
      t.starts.push_back(std::ssize(t.index));
    }
    return t;
  }

  // y + A x, row by row.
  Numbers times(const Numbers& x, Numbers y) const {
    for (std::int64_t r = 0; r < rows(); ++r) {
      for (std::int64_t k = starts[at(r)]; k < starts[at(r + 1)]; ++k) {
        y[at(r)] += values[at(k)] * x[at(index[at(k)])];
      }
    }
    return y;
  }
};

// Rows of these lengths; their columns are scattered and may repeat.
Matrix of_lengths(const Integers& lengths, std::int64_t columns) {
  Matrix m;
  m.columns = columns;
  for (const std::int64_t length : lengths) {
    Integers row;
    for (std::int64_t j = 0; j < length; ++j) {
      row.push_back(scattered(std::ssize(m.index) + j, 11, columns));
    }
    m.add_row(row);
  }
  return m;
}

Integers scattered_lengths(std::int64_t rows, std::int64_t bound) {
  return testing::scattered_values<std::int64_t>(rows, 2, bound);
}

std::vector<Matrix> matrices() {
  Integers one_long = scattered_lengths(37, 6);
  one_long[20] = 150;
  Integers ends_empty(19, 0);
  ends_empty[9] = 3;
  Matrix dense_row = of_lengths(scattered_lengths(130, 4), 41);
  dense_row.add_row(ascending(41));
  return {of_lengths({1}, 1),
          of_lengths({67}, 70),
          of_lengths(Integers(21, 1), 1),
          of_lengths(scattered_lengths(64, 9), 50),
          of_lengths(one_long, 90),
          of_lengths(ends_empty, 5),
          dense_row};
}

// The arrays of a kernel's format, made without the code under test.
struct Stored {
  Numbers values;
  Integers columns;
  Integers starts;
  Integers order;
  std::int64_t units = 0;  // that are divided among workers
  std::int64_t x_size = 0;
  std::int64_t y_size = 0;
  std::int64_t chunk = 1;
};

Stored in_chunks(const Matrix& m, std::int64_t chunk, std::int64_t sigma) {
  Stored s;
  s.order = ascending(m.rows());
  for (std::int64_t begin = 0; begin < m.rows(); begin += sigma) {
    std::stable_sort(s.order.begin() + begin, s.order.begin() + std::min(m.rows(), begin + sigma),
                     [&](std::int64_t a, std::int64_t b) { return m.length(a) > m.length(b); });
  }
  s.starts.push_back(0);
  for (std::int64_t first = 0; first < m.rows(); first += chunk) {
    const std::int64_t end = std::min(m.rows(), first + chunk);
    std::int64_t width = 0;
    for (std::int64_t i = first; i < end; ++i) width = std::max(width, m.length(s.order[at(i)]));
    for (std::int64_t j = 0; j < width; ++j) {
      for (std::int64_t i = first; i < first + chunk; ++i) {
        const bool has = i < end && j < m.length(s.order[at(i)]);
        const std::int64_t k = has ? m.starts[at(s.order[at(i)])] + j : 0;
        s.values.push_back(has ? m.values[at(k)] : 0.0);
        s.columns.push_back(has ? m.index[at(k)] : m.columns);
      }
    }
    s.starts.push_back(std::ssize(s.values));
  }
  s.units = std::ssize(s.starts) - 1;
  s.x_size = m.columns + 1;
  s.y_size = s.units * chunk;
  s.chunk = chunk;
  return s;
}

Stored stored(const std::string& kernel, const Matrix& m, std::int64_t chunk, std::int64_t sigma) {
  if (kernel == "spmv.sell") return in_chunks(m, chunk, sigma);
  if (kernel == "spmv.ell") {
    Stored s = in_chunks(m, m.rows(), 1);
    s.units = m.rows();
    return s;
  }
  Stored s;
  const Matrix lines = kernel == "spmv.csc" ? m.transposed() : m;
  s.values = lines.values;
  s.columns = lines.index;
  s.starts = lines.starts;
  s.order = ascending(m.rows());
  s.units = lines.rows();
  s.x_size = m.columns;
  s.y_size = m.rows();
  return s;
}

Numbers x_of(std::int64_t columns) { return testing::scattered_values<double>(columns, 5, 100); }

void expect_same(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(wanted[i]);
    EXPECT_TRUE(both_nan || got[i] == wanted[i]) << i << ": " << got[i] << ", not " << wanted[i];
  }
}

// Parts of [0, units), some of them empty, without any alignment.
Integers parts_of(std::int64_t units, int workers) {
  Integers boundaries{0};
  for (int w = 1; w < workers; ++w) {
    boundaries.push_back(std::max(boundaries.back(), scattered(w, 3, units + 1) * w / workers));
  }
  boundaries.push_back(units);
  return boundaries;
}

struct Way {
  int workers = 1;
  std::int64_t distance = 0;
  std::int64_t chunk = 8;
  std::int64_t sigma = 1;
};

template <class T, class I>
void run_fenced(const RegisteredEntry& e, const Matrix& m, const Numbers& x, const Way& way) {
  const Stored s = stored(e.kernel, m, way.chunk, way.sigma);
  const bool adds = std::string(e.template_variant) == "add";
  Fenced<T> values(as<T>(s.values, SpmvArgs::kTail));
  Fenced<I> columns(as<I>(s.columns, SpmvArgs::kTail));
  Fenced<I> starts(as<I>(s.starts));
  Fenced<T> their_x(as<T>(x, s.x_size - m.columns));
  const Numbers before = testing::scattered_values<double>(s.y_size, 6, 1000);
  Fenced<T> y(as<T>(before));
  Fenced<T> partial(std::vector<T>(at(m.rows() * way.workers)));
  SpmvArgs args;
  args.values = values.data();
  args.columns = columns.data();
  args.starts = starts.data();
  args.x = their_x.data();
  args.y = y.data();
  args.chunk = s.chunk;
  args.step = m.rows();
  args.width = std::ssize(s.values) / m.rows();
  args.rows = m.rows();
  args.entries = std::ssize(s.values);
  args.distance = way.distance;
  args.partial = partial.data();
  args.partial_stride = m.rows();

  Numbers in_order(at(s.y_size), 0.0);
  const Numbers product = m.times(x, Numbers(at(m.rows()), 0.0));
  for (std::int64_t i = 0; i < m.rows(); ++i) in_order[at(i)] = product[at(s.order[at(i)])];
  const Integers boundaries = parts_of(s.units, way.workers);
  // Twice, because the results of one invocation must not affect the next one.
  for (int invocation = 1; invocation <= 2; ++invocation) {
    for (int w = 0; w < way.workers; ++w)
      e.body(&args, {boundaries[at(w)], boundaries[at(w + 1)]}, w);
    if (e.finish != nullptr) e.finish(&args, way.workers);
    Numbers wanted = in_order;
    for (std::size_t i = 0; adds && i < wanted.size(); ++i) {
      wanted[i] = before[i] + invocation * in_order[i];
    }
    expect_same(as<double>(y.values()), wanted);
    if (::testing::Test::HasFailure()) return;
  }
  expect_same(as<double>(values.values()), as<double>(s.values, SpmvArgs::kTail));
  EXPECT_EQ(columns.values(), as<I>(s.columns, SpmvArgs::kTail));
}

std::vector<RegisteredEntry> all_entries() {
  return entries_of({"spmv.crs", "spmv.sell", "spmv.ell", "spmv.csc"});
}

class Bodies : public ::testing::TestWithParam<RegisteredEntry> {
 protected:
  static void run(const Matrix& m, const Numbers& x, const Way& way) {
    with_types(GetParam(), [&]<class T, class I>() { run_fenced<T, I>(GetParam(), m, x, way); });
    if (HasFailure()) {
      FAIL() << m.rows() << " x " << m.columns << ", C " << way.chunk << ", sigma " << way.sigma
             << ", " << way.workers << " workers, distance " << way.distance;
    }
  }
  static bool chunked() { return std::string(GetParam().kernel) == "spmv.sell"; }
  static Integers chunks() { return chunked() ? Integers{1, 3, 8, 16, 32, 128} : Integers{1}; }
};

TEST_P(Bodies, MatchPlainLoops) {
  for (const Matrix& m : matrices()) {
    const Numbers x = x_of(m.columns);
    for (const std::int64_t chunk : chunks()) {
      run(m, x, {1, 0, chunk, 1});
      run(m, x, {3, 5, chunk, 2 * chunk});
      run(m, x, {2, 2 * SpmvArgs::kTail, chunk, m.rows()});
    }
  }
}

// Only one row has values that are not finite; they must not affect other rows in the same vectors.
TEST_P(Bodies, ConfineNonFiniteValuesToTheirRows) {
  constexpr std::int64_t kColumns = 60;
  const Integers odd = {0, 1, kColumns - 1};
  for (const std::int64_t the_row : {0, 13, 29}) {
    Matrix m;
    m.columns = kColumns;
    for (std::int64_t r = 0; r < 30; ++r) {
      Integers row;
      for (std::int64_t j = 0; j < scattered(r, 8, 20); ++j) {
        row.push_back(2 + scattered(r * 20 + j, 1, kColumns - 3));
      }
      if (r == the_row) row.insert(row.end(), odd.begin(), odd.end());
      m.add_row(row);
    }
    for (const double bad : {kInfinity, -kInfinity, kNaN}) {
      Numbers x = x_of(kColumns);
      for (const std::int64_t c : odd) x[at(c)] = bad;
      Matrix bad_values = m;
      for (std::int64_t j = 0; j < m.length(the_row); ++j) {
        bad_values.values[at(m.starts[at(the_row)] + j)] = bad;
      }
      for (const std::int64_t chunk : chunks()) {
        run(m, x, {2, 0, chunk, 1});
        run(m, x, {1, 3, chunk, 4 * chunk});
        run(bad_values, x_of(kColumns), {1, 0, chunk, 4 * chunk});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Bodies, ::testing::ValuesIn(all_entries()), [](const auto& tried) {
  return testing::name_of(tried) + "_" + tried.param.template_variant;
});

TEST(Layout, MustFit64Bits) {
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_TRUE(is_refused(
      [&] {
        sell_layout(team_of(1), {0, large}, large, 1);
      },
      "the padded matrix"));
}

// Inputs of a caller, whose values and columns may be narrow.
struct Request : Given {
  Request(const std::string& name, const Matrix& a) {
    const Matrix lines = name == "spmv.csc" ? a.transposed() : a;
    kernel = name;
    index_dtype = "int32";
    indices = {{"columns", lines.index}, {"starts", lines.starts}};
    values = lines.values;
    integers = {{"rows", a.rows()},  {"columns", a.columns}, {"chunk", 8},   {"sigma", 1},
                {"move_columns", 0}, {"by_entries", 0},      {"prefetch", 0}};
  }

  std::unique_ptr<Problem> prepare(const Team& team, const Placement& placement = {}) const {
    Inputs inputs;
    inputs.integers = integers;
    inputs.indices = views_of(indices);
    std::vector<std::int32_t> narrow;
    if (narrow_columns) {
      narrow = as<std::int32_t>(indices.at("columns"));
      inputs.indices["columns"] = {narrow.data(), std::ssize(narrow), true};
    }
    const std::vector<float> short_values = as<float>(values);
    const bool is_short = values_dtype == "float32";
    const void* either = is_short ? static_cast<const void*>(short_values.data())
                                  : static_cast<const void*>(values.data());
    if (has_values) {
      inputs.data["values"] = {either, std::ssize(values), parse_dtype(values_dtype)};
    }
    return make_problem(kernel, dtype, index_dtype, inputs, team, placement);
  }

  Numbers values;
  std::string values_dtype = "float64";
  bool narrow_columns = false;
  bool has_values = true;
};

TEST(Prepare, RefusesWrongInputInASentence) {
  const std::vector<std::string> all = {"spmv.crs", "spmv.sell", "spmv.ell", "spmv.csc"};
  const std::vector<std::string> by_rows = {"spmv.crs", "spmv.sell", "spmv.ell"};
  const std::int64_t large = std::int64_t{1} << 31;
  const std::vector<std::pair<std::vector<std::string>, Wrong<Request>>> wrong = {
      {all, {[](Request& r) { r.has_values = false; }, "the input 'values' is missing"}},
      {all, {[](Request& r) { r.indices.erase("columns"); }, "the input 'columns' is missing"}},
      {all, {[](Request& r) { r.indices.erase("starts"); }, "the input 'starts' is missing"}},
      {all, {[](Request& r) { r.values_dtype = "float32"; }, "must be float64, not float32"}},
      {all, {[](Request& r) { r.dtype = "float32"; }, "must be float32, not float64"}},
      {all, {[](Request& r) { r.dtype = "int32"; }, "dtype 'int32' is not float32 or float64"}},
      {all, {[](Request& r) { r.index_dtype = "float64"; }, "'float64' is not int32 or int64"}},
      {all, {[](Request& r) { r.index_dtype = "uint32"; }, "'uint32' is not int32 or int64"}},
      {all, {[](Request& r) { r.index_dtype = ""; }, "dtype ''"}},
      {all, {[](Request& r) { r.values.pop_back(); }, "there are 13 values for 14 columns"}},
      {all, {[](Request& r) { r.indices["columns"].clear(); }, "columns must not be empty"}},
      {all, {[](Request& r) { r.indices["starts"].clear(); }, "starts must not be empty"}},
      {all, {[](Request& r) { r.indices["starts"].pop_back(); }, "must have 7 entries, not 6"}},
      {all, {put("starts", 0, 1), "starts must ascend from 0"}},
      {all, {[](Request& r) { --r.indices["starts"].back(); }, "number of entries, 14"}},
      {all, {[](Request& r) { ++r.indices["starts"].back(); }, "number of entries, 14"}},
      {all, {put("starts", 2, 13), "starts must ascend"}},
      {all, {put("starts", 1, -1), "starts must ascend"}},
      {all, {put("starts", 1, kMax), "starts must ascend"}},
      {all, {put("columns", 3, 6), "columns[3] is 6, outside 0 to 5"}},
      {all, {put("columns", 13, -1), "columns[13] is -1, outside 0 to 5"}},
      {all, {put("columns", 0, kMax), "outside 0 to 5"}},
      // It would be in bounds if it were truncated to 32 bits.
      {all, {put("columns", 0, std::int64_t{1} << 32), "outside 0 to 5"}},
      {all, {set("prefetch", -1), "prefetch must be at least 0, not -1"}},
      {by_rows, {set("rows", 7), "starts must have 8 entries, not 7"}},
      {by_rows, {set("rows", kMax), "64 bits"}},
      {by_rows, {set("columns", kMax), "64 bits"}},
      {{"spmv.csc"}, {set("rows", kMax), "64 bits"}},
      {{"spmv.csc"}, {set("columns", kMax), "64 bits"}},
      {{"spmv.sell"}, {set("chunk", kMax), "64 bits"}},
      // Too large for 32 bits, which must be reported before any memory is allocated.
      {{"spmv.crs"}, {set("columns", large + 1), "columns reaches up to 2147483648, too far"}},
      {{"spmv.sell", "spmv.ell"}, {set("columns", large), "columns reaches up to 2147483648"}},
      {{"spmv.csc"}, {set("rows", large + 1), "columns reaches up to 2147483648, too far"}},
      {{"spmv.sell"}, {set("chunk", large), "starts reaches up to"}},
  };
  const Matrix m = of_lengths({3, 0, 5, 1, 1, 4}, 6);
  for (const auto& [kernels, change] : wrong) {
    for (const std::string& kernel : kernels) expect_refused(Request(kernel, m), {change});
  }
}

TEST(Prepare, MovesOnlyColumnsOfSquareMatrices) {
  Request r("spmv.sell", of_lengths({1, 2, 3}, 4));
  r.integers["move_columns"] = 1;
  EXPECT_TRUE(is_refused([&] { r.prepare(team_of(2)); }, "not one of 3 rows and 4 columns"));
}

template <class T>
std::vector<T> input(const Problem& problem, const std::string& name) {
  const Array& a = problem.any_array(name);
  std::vector<T> all(at(a.rows * a.columns));
  problem.copy_out(a, all.data());
  return all;
}

template <class T, class I>
void expect_stored(const Request& r, const Matrix& m, const Team& team) {
  const std::int64_t chunk = r.integers.at("chunk");
  const auto problem = r.prepare(team);
  const Stored s = stored(r.kernel, m, chunk, std::min(r.integers.at("sigma"), m.rows()));
  EXPECT_EQ(as<double>(input<T>(*problem, "values")), s.values);
  EXPECT_EQ(as<std::int64_t>(input<I>(*problem, "columns")), s.columns);
  EXPECT_EQ(as<std::int64_t>(input<I>(*problem, "starts")), s.starts);
  if (r.kernel == "spmv.sell" || r.kernel == "spmv.ell") {
    EXPECT_EQ(input<std::int64_t>(*problem, "order"), s.order);
  }
  EXPECT_EQ(problem->count(), s.units);
  EXPECT_EQ(problem->array("x").columns, s.x_size);
  EXPECT_EQ(problem->array("y").columns, s.y_size);
  EXPECT_EQ(problem->array("x").type, parse_dtype(r.dtype));
  EXPECT_EQ(problem->array("y").type, parse_dtype(r.dtype));
  EXPECT_EQ(problem->index_dtype(), r.index_dtype);
  EXPECT_EQ(problem->facts().at("entries_stored"), static_cast<double>(s.values.size()));
  EXPECT_GE(problem->facts().at("convert_s"), 0.0);
  const auto& args = *static_cast<const SpmvArgs*>(problem->args());
  for (std::int64_t i = 0; i < SpmvArgs::kTail; ++i) {
    ASSERT_EQ(static_cast<const T*>(args.values)[args.entries + i], T{0});
    ASSERT_EQ(static_cast<const I*>(args.columns)[args.entries + i], I{0});
  }
}

// Rows are sorted within blocks of sigma rows, and rows of equal length keep their order.
TEST(Prepare, StoresTheMatrixInItsFormat) {
  const std::pair<std::int64_t, std::int64_t> layouts[] = {{1, 1}, {3, 6},     {8, 1},
                                                           {8, 8}, {16, kMax}, {128, 512}};
  for (const std::string kernel : {"spmv.crs", "spmv.sell", "spmv.ell", "spmv.csc"}) {
    for (const char* dtype : {"float32", "float64"}) {
      for (const char* index : {"int32", "int64"}) {
        for (const bool narrow : {false, true}) {
          for (const auto& [chunk, sigma] : layouts) {
            for (const Matrix& m : matrices()) {
              Request r(kernel, m);
              r.dtype = r.values_dtype = dtype;
              r.index_dtype = index;
              r.narrow_columns = narrow;
              r.integers["chunk"] = chunk;
              r.integers["sigma"] = sigma;
              const RegisteredEntry e{{"", "", dtype, index, nullptr, nullptr}, ""};
              with_types(e, [&]<class T, class I>() {
                expect_stored<T, I>(r, m, team_of(narrow ? 3 : 1));
              });
            }
            if (kernel != "spmv.sell") break;
          }
        }
      }
    }
  }
}

TEST(Prepare, LimitsThePrefetchToTheEntries) {
  Request r("spmv.crs", of_lengths({3, 4}, 5));
  r.integers["prefetch"] = kMax;
  const auto problem = r.prepare(team_of(1));
  EXPECT_EQ(static_cast<const SpmvArgs*>(problem->args())->distance, 7);
}

// Hardware gathers of 4-byte values have 4-byte indices.
TEST(Prepare, RunsNarrowGathersWithinTheirReach) {
  constexpr std::int64_t kReach = std::numeric_limits<std::int32_t>::max();
  testing::FakeDevice device;  // has room for such vectors
  Placement placement;
  placement.device = &device;
  for (const std::string index : {"int32", "int64"}) {
    for (const std::string dtype : {"float32", "float64"}) {
      for (const std::int64_t columns : {std::int64_t{5}, kReach, kReach + 1}) {
        Request r("spmv.crs", of_lengths({3, 4}, 5));
        r.integers["columns"] = columns;
        r.dtype = r.values_dtype = dtype;
        r.index_dtype = index;
        const auto problem = r.prepare(team_of(1), placement);
        const bool beyond = index == "int64" && dtype == "float32" && columns > kReach;
        for (const RegisteredEntry& e : all_entries()) {
          if (e.kernel != r.kernel || e.dtype != dtype || e.index != index) continue;
          const std::string variant = e.variant;
          const bool narrow = variant == "simd" || variant == "nta";
          EXPECT_EQ(problem->runs(e), !(beyond && narrow)) << variant << " " << columns;
        }
      }
    }
  }
}

// One worker and ELLPACK have none.
TEST(Boundaries, DivideRowsOrEntriesEqually) {
  for (const int workers : {1, 2, 3, 5}) {
    const Team team({workers, "none"});
    for (const Matrix& m : matrices()) {
      for (const std::string kernel : {"spmv.crs", "spmv.sell", "spmv.csc", "spmv.ell"}) {
        const Stored s = stored(kernel, m, 8, 1);
        for (const bool by_entries : {false, true}) {
          Request r(kernel, m);
          r.integers["by_entries"] = by_entries ? 1 : 0;
          const Boundaries boundaries = r.prepare(team)->boundaries();
          if (workers == 1 || kernel == "spmv.ell") {
            EXPECT_TRUE(boundaries.empty());
            continue;
          }
          ASSERT_EQ(std::ssize(boundaries), workers + 1);
          EXPECT_EQ(boundaries.front(), 0);
          EXPECT_EQ(boundaries.back(), s.units);
          EXPECT_TRUE(std::is_sorted(boundaries.begin(), boundaries.end()));
          for (int w = 0; w < workers; ++w) {
            if (!by_entries) {
              EXPECT_EQ(boundaries[at(w)], contiguous_part(s.units, workers, w).begin);
              continue;
            }
            // No other boundary between rows is closer to the equal share.
            const std::int64_t share = contiguous_part(std::ssize(s.values), workers, w).begin;
            const auto off = [&](std::int64_t start) { return std::abs(start - share); };
            for (const std::int64_t start : s.starts) {
              EXPECT_LE(off(s.starts[at(boundaries[at(w)])]), off(start));
            }
          }
        }
      }
    }
  }
}

// One entry of each kernel, variant and form, with types and instruction sets that vary.
std::vector<RegisteredEntry> one_of_each() {
  std::map<std::string, std::vector<RegisteredEntry>> kinds;
  for (const RegisteredEntry& e : all_entries()) {
    if (e.unroll > 1) continue;
    kinds[std::string(e.kernel) + "/" + e.variant + "/" + e.template_variant].push_back(e);
  }
  std::vector<RegisteredEntry> all;
  for (const auto& [kind, entries] : kinds) all.push_back(entries[all.size() * 3 % entries.size()]);
  return all;
}

// y in the order of A after three invocations with this x, which begin with y = 0.
Numbers result(const Request& r, const RegisteredEntry& e, const Team& team, const Numbers& x,
               Repetition repetition, Schedule schedule) {
  const auto problem = r.prepare(team);
  const std::int64_t rows = r.integers.at("rows");
  const auto order =
      r.kernel == "spmv.sell" ? input<std::int64_t>(*problem, "order") : ascending(rows);
  problem->fill(true);
  const Array& to_x = problem->array("x");
  for (std::int64_t c = 0; c < to_x.columns; ++c) {
    const bool moved = r.integers.at("move_columns") != 0 && c < std::ssize(x);
    problem->poke(to_x, c, c < std::ssize(x) ? x[at(moved ? order[at(c)] : c)] : 0.0);
  }
  const Array& y = problem->array("y");
  for (std::int64_t i = 0; i < y.columns; ++i) problem->poke(y, i, 0.0);
  sample(team, e, *problem, 3, repetition, schedule);
  Numbers all(at(rows));
  for (std::int64_t i = 0; i < rows; ++i) all[at(order[at(i)])] = problem->peek(y, i);
  for (std::int64_t i = rows; i < y.columns; ++i) EXPECT_EQ(problem->peek(y, i), 0.0) << i;
  return all;
}

TEST(Workers, GiveTheSameResultInEveryWay) {
  Integers lengths = scattered_lengths(53, 7);
  lengths[30] = 80;
  const Matrix m = of_lengths(lengths, 53);
  const Numbers x = x_of(m.columns);
  const Numbers once = m.times(x, Numbers(at(m.rows()), 0.0));
  Numbers thrice = once;
  for (double& value : thrice) value *= 3;
  for (const int workers : {1, 2, 3}) {
    const Team team({workers, "none"});
    for (const RegisteredEntry& e : one_of_each()) {
      SCOPED_TRACE(::testing::PrintToString(e));
      for (const std::int64_t by_entries : {0, 1}) {
        Request r(e.kernel, m);
        r.dtype = r.values_dtype = e.dtype;
        r.index_dtype = e.index;
        r.integers["by_entries"] = by_entries;
        r.integers["prefetch"] = 4 * by_entries;
        if (r.kernel == "spmv.sell") {
          r.integers["chunk"] = 4;
          r.integers["sigma"] = 12;
          r.integers["move_columns"] = by_entries;
        }
        const Numbers& wanted = std::string(e.template_variant) == "add" ? thrice : once;
        const auto run = [&](Repetition repetition, Schedule schedule) {
          return result(r, e, team, x, repetition, schedule);
        };
        EXPECT_EQ(run(Repetition::Fork, {}), wanted);
        EXPECT_EQ(run(Repetition::Barrier, {}), wanted);
        // Without barriers, partial results are added up once, at the end.
        EXPECT_EQ(run(Repetition::Free, {}), e.finish != nullptr ? thrice : wanted);
        EXPECT_EQ(run(Repetition::Fork, {Schedule::Kind::Dynamic, 2}), wanted);
        EXPECT_EQ(run(Repetition::Barrier, {Schedule::Kind::Static, 5}), wanted);
      }
    }
  }
}

}  // namespace
}  // namespace memkern
