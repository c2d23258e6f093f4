// Atomic memory operations on an emulated GPU: it runs one thread after the other, here in
// ascending order, so that the results of every variant follow from the definition of the patterns.
#include "amo_cases.hpp"
#include "backends/cuda/device.hpp"

namespace memkern {
namespace {

using namespace testing;

const int kInOrder = setenv("MEMKERN_EMULATED_ORDER", "ascending", 1);

constexpr std::array<int, 4> kWorkers{1, 3, 64, 300};
constexpr std::array<int, 5> kBlocks{1, 32, 100, 256, 1024};
// Values have 23 bits: this operand sets some bits, clears others, and is neither the smallest nor
// the largest value.
constexpr std::int64_t kOperand = 0x2AAAAB;

using Row = std::array<std::uint64_t, kTallies>;

std::vector<DeviceEntry> device_entries() {
  std::vector<DeviceEntry> all;
  for (const DeviceEntry& e : cuda::device(0).entries()) {
    if (is_amo(e.kernel)) all.push_back(e);
  }
  return all;
}

std::string named(const Entry& e) {
  return std::string(e.kernel) + " " + e.dtype + " " + e.index + " " + e.template_variant;
}

// The parts of an entry's form, and properties that follow from its kernel.
struct Form {
  explicit Form(const Entry& e) : pattern(std::string(e.kernel).substr(4)) {
    const std::string form = e.template_variant;
    const std::size_t slash = form.find('/');
    primitive = form.substr(0, slash);
    order = form.substr(slash + 1, form.rfind('/') - slash - 1);
    used = form.ends_with("/used");
    swaps = primitive.starts_with("cas");
    integer = std::string(e.dtype).starts_with("uint");
    indexed = *e.index != '\0';
    // Every operation has the case's operand.
    constant =
        pattern != "ptrchase" && pattern != "scatter" && pattern != "gather" && pattern != "sg";
  }
  bool is_one_of(const std::set<std::string>& primitives) const {
    return primitives.count(primitive) == 1;
  }
  std::string pattern;
  std::string primitive;
  std::string order;
  bool used;
  bool swaps;
  bool integer;
  bool indexed;
  bool constant;
};

// Whether a variant supports this form of the processor's entry.
bool supports(const std::string& variant, const Form& f) {
  if (f.primitive == "cas-target") return false;
  if (variant == "device") {
    return f.order == "relaxed" || f.is_one_of({"add", "cas", "cas-retry"});
  }
  if (f.order != "relaxed") return false;
  if (variant == "system") return f.is_one_of({"add", "exchange", "cas"});
  if (variant == "coalesced") {
    return f.is_one_of({"add", "plain", "cas"}) && f.pattern != "central" &&
           f.pattern != "ptrchase";
  }
  if (variant == "warp") return f.integer && f.primitive == "add" && f.constant;
  return f.integer && !f.used && f.pattern == "central" &&
         f.is_one_of({"add", "and", "or", "xor", "min", "max"});
}

TEST(Table, HasTheFormsThatItsVariantsSupport) {
  for (const std::string variant : {"device", "system", "coalesced", "shared", "warp"}) {
    std::multiset<std::string> wanted;
    for (const RegisteredEntry& e : entries_of(is_amo)) {
      if (supports(variant, Form(e))) wanted.insert(named(e));
    }
    std::multiset<std::string> found;
    for (const DeviceEntry& e : device_entries()) {
      if (e.variant == variant) found.insert(named(e));
    }
    EXPECT_FALSE(found.empty()) << variant;
    EXPECT_EQ(found, wanted) << variant;
  }
}

// The definition, carried out one operation after the other.
template <class V>
class Oracle {
 public:
  Oracle(const Form& form, const Shape& shape, std::vector<V> values, const Integers& index)
      : values_(std::move(values)),
        f_(form),
        s_(shape),
        index_(index),
        rows_(static_cast<std::size_t>(shape.workers)) {}

  void run_parts(Range range) {
    for (int w = 0; w < s_.workers; ++w) {
      const Range part = contiguous_part(range.end - range.begin, s_.workers, w);
      const std::int64_t first = range.begin + part.begin;
      const std::int64_t steps = part.end - part.begin;
      walk_ = first;
      for (std::int64_t step = 0; step < steps; ++step) {
        iterate(w, first + step, step, s_.shared ? step : first + step);
      }
      row(w)[kEnd] = f_.pattern == "ptrchase" ? static_cast<std::uint64_t>(walk_) : 0;
    }
  }
  void run_turns(Range range) {
    for (int w = 0; w < s_.workers; ++w) {
      for (std::int64_t i = range.begin + w; i < range.end; i += s_.workers) iterate(w, i, 0, i);
    }
  }

  const std::vector<V>& values() const { return values_; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  Row& row(int worker) { return rows_[static_cast<std::size_t>(worker)]; }
  V& value(std::int64_t at) { return values_.at(static_cast<std::size_t>(at)); }

  // `own` is the word of this iteration, without the stride.
  void iterate(int worker, std::int64_t i, std::int64_t step, std::int64_t own) {
    Row& t = row(worker);
    const V operand = static_cast<V>(kOperand);
    ++t[kIterations];
    if (f_.pattern == "rand") {
      last(t, place(i), operand, false);
    } else if (f_.pattern.starts_with("stride")) {
      last(t, own * s_.stride, operand, false);
    } else if (f_.pattern == "central") {
      last(t, (worker + (s_.shared ? step : 0)) % s_.hot * s_.stride, operand, false);
    } else if (f_.pattern == "ptrchase") {
      walk_ = look(t, walk_);
      t[kReturned] += static_cast<std::uint64_t>(walk_);
    } else if (f_.pattern == "scatter") {
      const std::int64_t to = look(t, i + 1);
      last(t, to, read(t, own * s_.stride), true);
    } else if (f_.pattern == "gather") {
      const std::int64_t from = look(t, i + 1);
      last(t, own * s_.stride, read(t, from), true);
    } else {
      const std::int64_t from = look(t, i);
      const std::int64_t to = look(t, i + 1);
      last(t, to, read(t, from), true);
    }
  }

  std::int64_t place(std::int64_t i) const { return index_.at(static_cast<std::size_t>(i)); }
  std::int64_t look(Row& t, std::int64_t i) const {
    if (f_.swaps) tried(t, 0);
    return place(i);
  }
  V read(Row& t, std::int64_t at) {
    if (f_.swaps) return operate(t, at, value(at), true);
    return operate(t, at, static_cast<V>(kOperand), false);
  }
  void last(Row& t, std::int64_t at, V operand, bool swapped_in) {
    const V old = operate(t, at, operand, swapped_in);
    if (f_.used) t[kReturned] += static_cast<std::uint64_t>(old);
  }

  static void tried(Row& t, std::uint64_t applied) {
    t[kApplied] += applied;
    ++t[kAttempts];
    ++t[kSuccesses];
  }

  V operate(Row& t, std::int64_t at, V operand, bool swapped_in) {
    V& v = value(at);
    const V old = v;
    v = f_.swaps && swapped_in ? operand : combined(old, operand);
    if (f_.swaps) {
      tried(t, static_cast<std::uint64_t>(v) - static_cast<std::uint64_t>(old));
    } else if (f_.primitive == "xor") {
      t[kApplied] ^= static_cast<std::uint64_t>(operand);
    } else {
      t[kApplied] += static_cast<std::uint64_t>(operand);
    }
    return old;
  }

  V combined(V old, V operand) const {
    if constexpr (std::is_integral_v<V>) {
      if (f_.primitive == "and") return old & operand;
      if (f_.primitive == "or") return old | operand;
      if (f_.primitive == "xor") return old ^ operand;
    }
    if (f_.primitive == "min") return std::min(old, operand);
    if (f_.primitive == "max") return std::max(old, operand);
    if (f_.primitive == "exchange") return operand;
    return static_cast<V>(old + operand);
  }

  std::vector<V> values_;
  Form f_;
  Shape s_;
  const Integers& index_;
  std::vector<Row> rows_;
  std::int64_t walk_ = 0;
};

// A case on the device.
template <class V>
class Tried {
 public:
  Tried(const Entry& e, const Shape& s) : form_(e), shape_(s), index_(index_of(e.kernel, s)) {
    Placement placement;
    placement.device = &cuda::device(0);
    placement.workers = s.workers;
    const Given given = amo_case(e, s, index_, s.words(e.kernel), kOperand);
    problem_ = given.prepare(team_of(1), placement);
  }

  const Problem& problem() const { return *problem_; }

  // The expected results.
  Oracle<V> expected(const std::string& variant, Range range, int invocations) {
    restore();
    Oracle<V> oracle(form_, shape_, values(), index_);
    for (int k = 0; k < invocations; ++k) {
      if (variant == "coalesced") {
        oracle.run_turns(range);
      } else {
        oracle.run_parts(range);
      }
    }
    return oracle;
  }

  void run(const DeviceEntry& e, Range range, int block, int invocations) {
    restore();
    const DeviceStep step{e.launch, problem_->args(), range, block};
    cuda::device(0).sample({step}, invocations, Timer::Host, nullptr);
    problem_->mark_written();
  }

  std::vector<V> values() const {
    if (form_.pattern == "ptrchase") return {};
    const Array& array = problem_->array("VAL");
    std::vector<V> all(static_cast<std::size_t>(array.columns));
    problem_->copy_out(array, all.data());
    return all;
  }
  std::vector<Row> rows() const {
    std::vector<Row> all(static_cast<std::size_t>(shape_.workers));
    problem_->copy_out(problem_->array("tally"), all.data());
    return all;
  }
  bool index_is_unchanged() const {
    if (!form_.indexed) return true;
    std::pair<std::uint64_t, std::uint64_t> wanted{0, 0};
    for (const std::int64_t i : index_) {
      wanted.first += static_cast<std::uint64_t>(i);
      wanted.second ^= static_cast<std::uint64_t>(i);
    }
    return problem_->digest("IDX") == wanted;
  }

 private:
  void restore() {
    problem_->fill(true);
    const std::vector<Row> zeros(static_cast<std::size_t>(shape_.workers), Row{});
    problem_->copy_in("tally", zeros.data());
  }

  Form form_;
  Shape shape_;
  Integers index_;
  std::unique_ptr<Problem> problem_;
};

// Calls fn<V>() with the type of an entry's values.
template <class Fn>
void with_words(const Entry& e, const Fn& fn) {
  const std::string dtype = e.dtype;
  if (dtype == "uint64") fn.template operator()<std::uint64_t>();
  if (dtype == "uint32") fn.template operator()<std::uint32_t>();
  if (dtype == "float64") fn.template operator()<double>();
  if (dtype == "float32") fn.template operator()<float>();
}

template <class V>
void expect_the_same(Tried<V>& tried, const DeviceEntry& e, Range range, int block, int invocations,
                     const Oracle<V>& oracle) {
  tried.run(e, range, block, invocations);
  EXPECT_EQ(tried.values(), oracle.values()) << "VAL in blocks of " << block;
  std::vector<Row> rows = tried.rows();
  std::vector<Row> wanted = oracle.rows();
  if (std::string(e.variant) == "warp") {
    // The lanes of a warp update in turn, so that workers get other values with the same sum.
    const auto add_up = [](std::vector<Row>& all) {
      for (Row& row : all) {
        if (&row != &all.front()) all.front()[kReturned] += std::exchange(row[kReturned], 0);
      }
    };
    add_up(rows);
    add_up(wanted);
  }
  EXPECT_EQ(rows, wanted) << "tallies in blocks of " << block;
  EXPECT_TRUE(tried.index_is_unchanged());
}

template <class V>
void try_all(const DeviceEntry& e, const Shape& s) {
  SCOPED_TRACE(named(e) + " " + e.variant + " of " + std::to_string(s.workers) + " workers");
  Tried<V> tried(e, s);
  if (s.shared && std::string(e.variant) == "coalesced") {
    EXPECT_FALSE(tried.problem().runs({e, "sm_00"}));
    return;
  }
  EXPECT_TRUE(tried.problem().runs({e, "sm_00"}));
  const Range whole{0, s.count()};
  const Oracle<V> oracle = tried.expected(e.variant, whole, 2);
  for (const int block : kBlocks) expect_the_same(tried, e, whole, block, 2, oracle);
  // Parts that are not equal, and more workers than iterations.
  for (const Range part :
       {Range{0, (s.count() + 1) / 2}, Range{s.count() / 3, s.count() / 3 + 1}}) {
    expect_the_same(tried, e, part, 32, 1, tried.expected(e.variant, part, 1));
  }
}

TEST(Kernels, FollowTheirDefinition) {
  for (const DeviceEntry& e : device_entries()) {
    for (Shape s : {Shape{5, 1, 1, false}, Shape{3, 3, 7, true}, Shape{2, 2, 300, false}}) {
      for (const int workers : kWorkers) {
        s.workers = workers;
        with_words(e, [&]<class V>() { try_all<V>(e, s); });
      }
    }
  }
}

TEST(Shared, HotWordsWithoutSpaceAreUpdatedInPlace) {
  // More than 48 KiB for either type; each worker updates every word once.
  const Shape s{12400, 2, 12400, true, 3};
  for (const DeviceEntry& e : device_entries()) {
    if (std::string(e.variant) != "shared") continue;
    with_words(e, [&]<class V>() {
      SCOPED_TRACE(named(e));
      Tried<V> tried(e, s);
      const Oracle<V> oracle = tried.expected(e.variant, {0, s.count()}, 1);
      for (const int block : {1, 2, 32}) {
        expect_the_same(tried, e, {0, s.count()}, block, 1, oracle);
      }
    });
  }
}

}  // namespace
}  // namespace memkern
