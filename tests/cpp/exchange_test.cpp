// Cases that exchange values in every invocation, here between a rank and itself.
#include "engine/exchange.hpp"

#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// Sends element from[k] to element to[k]; messages arrive in finish().
class Own : public Exchange {
 public:
  Own(Integers from, Integers to, bool adds)
      : from_(std::move(from)), to_(std::move(to)), adds_(adds), out_(from_.size()) {}

  void bind(const char*, const std::byte* from, std::int64_t, std::byte* to,
            std::int64_t elements) override {
    source_ = reinterpret_cast<const double*>(from);
    target_ = reinterpret_cast<double*>(to);
    elements_ = elements;
  }
  bool adds() const override { return adds_; }
  std::int64_t packed() const override { return std::ssize(from_); }
  std::int64_t unpacked() const override { return std::ssize(to_); }
  void pack(Range range) override {
    for (std::int64_t k = range.begin; k < range.end; ++k) out_[at(k)] = source_[from_[at(k)]];
  }
  void start() override { in_.clear(); }
  void finish() override {
    in_ = out_;
    ++exchanges_;
  }
  void unpack(Range range) override {
    for (std::int64_t k = range.begin; k < range.end; ++k) {
      double& to = target_[to_[at(k)]];
      to = adds_ ? to + in_[at(k)] : in_[at(k)];
    }
  }
  int exchanges() const { return exchanges_; }
  std::int64_t elements() const { return elements_; }

 private:
  Integers from_;
  Integers to_;
  bool adds_;
  std::vector<double> out_;
  std::vector<double> in_;
  const double* source_ = nullptr;
  double* target_ = nullptr;
  std::int64_t elements_ = 0;
  int exchanges_ = 0;
};

struct How {
  const char* repetition;
  const char* schedule;
  std::int64_t chunk;
};
void set_how(Request& request, const How& how) {
  request.repetition = how.repetition;
  request.schedule = how.schedule;
  request.chunk = how.chunk;
}
constexpr How kHow[] = {{"fork", "static", 0},
                        {"barrier", "static", 0},
                        {"spin", "static", 0},
                        {"fork", "static", 3},
                        {"barrier", "dynamic", 2}};

// Each of 40 local nodes reads one global node; the last 10 are received from the first 10.
struct Scatter {
  static constexpr std::int64_t kNodes = 40;
  static constexpr std::int64_t kReceived = 10;

  Integers ids = ascending(kNodes);
  Integers received = ascending(kReceived, kNodes - kReceived);
  Request request;
  std::shared_ptr<Own> own;

  explicit Scatter(const How& how, int threads = 3) {
    own = std::make_shared<Own>(ascending(kReceived), received, false);
    request.kernel = "bs.bs7";
    request.index_dtype = "int32";
    request.threads = threads;
    set_how(request, how);
    request.inputs.integers = {{"local_nodes", kNodes}, {"global_nodes", kNodes}, {"prefetch", 0}};
    request.inputs.indices["ids"] = view_of(ids);
    request.exchange = own;
    request.exchanged = "xg";
  }
};

TEST(Exchange, PrecedesTheIterationsThatReadItsElements) {
  for (const How& how : kHow) {
    for (const std::int64_t split : {-1, 0, 7, 30}) {
      Scatter scatter(how);
      if (split >= 0) scatter.request.inputs.integers["split_at"] = split;
      Prepared prepared(scatter.request);
      EXPECT_EQ(scatter.own->elements(), Scatter::kNodes);
      prepared.problem().fill(true);
      prepared.run(3);
      EXPECT_EQ(scatter.own->exchanges(), 3);
      for (std::int64_t i = 0; i < Scatter::kNodes; ++i) {
        const std::int64_t from = i < 30 ? i : i - 30;
        EXPECT_EQ(element(prepared, "xl", i), element(prepared, "xg", from))
            << how.repetition << ' ' << how.schedule << ' ' << split << ' ' << i;
      }
      // fill() overwrites received elements.
      const double received = element(prepared, "xg", 30);
      prepared.problem().fill(false);
      EXPECT_NE(element(prepared, "xg", 30), received);
    }
  }
}

// Each global node is the sum of two adjacent local nodes, which get it; the first 5 are sent.
TEST(Exchange, FollowsTheIterationsWhoseResultsAreSent) {
  constexpr std::int64_t kNodes = 20;
  Integers starts = ascending(kNodes + 1);
  for (std::int64_t& start : starts) start *= 2;
  const Integers columns = ascending(2 * kNodes);
  for (const How& how : kHow) {
    for (const std::int64_t split : {-1, 5, 12, 20}) {
      const auto own =
          std::make_shared<Own>(Integers{0, 2, 4, 6, 8}, Integers{39, 38, 37, 36, 35}, true);
      Request request;
      request.kernel = "bs.bs8";
      request.index_dtype = "int64";
      request.threads = 2;
      set_how(request, how);
      request.inputs.integers = {
          {"local_nodes", 2 * kNodes}, {"global_nodes", kNodes}, {"prefetch", 0}};
      if (split >= 0) request.inputs.integers["split_at"] = split;
      request.inputs.indices["row_starts"] = view_of(starts);
      request.inputs.indices["columns"] = view_of(columns);
      request.exchange = own;
      request.exchanged = "xl";
      Prepared prepared(request);
      prepared.problem().fill(true);
      std::vector<double> wanted(at(2 * kNodes));
      for (std::int64_t i = 0; i < 2 * kNodes; ++i) {
        wanted[at(i)] = element(prepared, "xl", i / 2 * 2) + element(prepared, "xl", i / 2 * 2 + 1);
      }
      for (std::int64_t k = 0; k < 5; ++k) wanted[at(39 - k)] += wanted[at(2 * k)];
      prepared.run(1);
      for (std::int64_t i = 0; i < 2 * kNodes; ++i) {
        EXPECT_EQ(element(prepared, "xl", i), wanted[at(i)])
            << how.repetition << ' ' << how.schedule << ' ' << split << ' ' << i;
      }
    }
  }
}

// Rows of different lengths, divided among workers in each part.
struct Product {
  static constexpr std::int64_t kRows = 37;
  Integers starts{0};
  Integers columns;
  std::vector<double> values;
  Request request;

  Product(const std::string& kernel, const How& how) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t k = 0; k < 1 + row * row % 7; ++k) {
        columns.push_back((row * 5 + k * 3) % kRows);
        values.push_back(static_cast<double>(1 + k));
      }
      starts.push_back(std::ssize(columns));
    }
    request.kernel = kernel;
    request.index_dtype = "int32";
    request.template_variant = "write";
    request.threads = 3;
    set_how(request, how);
    request.inputs.integers = {{"rows", kRows}, {"columns", kRows},  {"chunk", 4},
                               {"sigma", 8},    {"move_columns", 0}, {"by_entries", 1},
                               {"prefetch", 0}};
    request.inputs.indices["starts"] = view_of(starts);
    request.inputs.indices["columns"] = view_of(columns);
    request.inputs.data["values"] = {values.data(), std::ssize(values), DType::F64};
    request.exchange = std::make_shared<Own>(Integers{0, 1, 2}, Integers{0, 1, 2}, false);
    request.exchanged = "x";
  }
};

TEST(Exchange, SplitsProductsBetweenRowsAndChunks) {
  for (const char* kernel : {"spmv.crs", "spmv.sell", "spmv.ell"}) {
    for (const How& how : kHow) {
      for (const std::int64_t split : {-1, 0, 1, 6, 10}) {
        Product product(kernel, how);
        if (split >= 0) product.request.inputs.integers["split_at"] = split;
        Prepared prepared(product.request);
        prepared.problem().fill(true);
        prepared.run(1);
        Integers order = ascending(Product::kRows);
        if (std::string(kernel) != "spmv.crs") {
          prepared.problem().copy_out(prepared.problem().any_array("order"), order.data());
        }
        for (std::int64_t i = 0; i < Product::kRows; ++i) {
          const std::int64_t row = order[at(i)];
          double wanted = 0;
          for (std::int64_t k = product.starts[at(row)]; k < product.starts[at(row + 1)]; ++k) {
            wanted += product.values[at(k)] * element(prepared, "x", product.columns[at(k)]);
          }
          EXPECT_EQ(element(prepared, "y", i), wanted) << kernel << ' ' << split << ' ' << i;
        }
        // Rows of the first chunks stay in them.
        if (std::string(kernel) == "spmv.sell" && split >= 0) {
          const std::int64_t first = std::min(4 * split, Product::kRows);
          for (std::int64_t i = 0; i < first; ++i) EXPECT_LT(order[at(i)], first);
        }
      }
    }
  }
}

TEST(Exchange, IsLeftOutOfParts) {
  Scatter scatter(kHow[0]);
  Prepared prepared(scatter.request);
  prepared.run_range(0, 10);
  EXPECT_EQ(scatter.own->exchanges(), 0);
}

TEST(Exchange, RefusesWhatCannotExchange) {
  const auto message = [](Request& request) {
    return refusal<InputError>([&] { const Prepared prepared(request); });
  };
  Scatter scatter(kHow[0]);
  Request request = scatter.request;
  request.repetition = "free";
  EXPECT_TRUE(contains(message(request), "use repetition 'barrier'"));
  request = scatter.request;
  request.exchanged = "z";
  EXPECT_TRUE(contains(message(request), "has no array 'z'"));
  request = scatter.request;
  request.inputs.integers["split_at"] = 41;
  EXPECT_TRUE(contains(message(request), "split_at must be at most the 40 iterations, not 41"));
  request.inputs.integers["split_at"] = -1;
  EXPECT_TRUE(contains(message(request), "split_at must be at least 0, not -1"));
  request.inputs.integers["split_at"] = 3;
  request.exchange = nullptr;
  EXPECT_TRUE(contains(message(request), "split_at is for cases that exchange values"));
  Product product("spmv.csc", kHow[0]);
  EXPECT_TRUE(contains(message(product.request), "can't exchange the values of"));
  Product chunks("spmv.sell", kHow[0]);
  chunks.request.inputs.integers["split_at"] = 11;
  EXPECT_TRUE(contains(message(chunks.request), "at most the 10 iterations"));
}

}  // namespace
}  // namespace memkern
