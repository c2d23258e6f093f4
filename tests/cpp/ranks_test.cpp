// Arrays and atomic patterns over ranks, with a library whose ranks take turns in this process.
#include "backends/ranks/arrays.hpp"
#include "backends/ranks/device.hpp"
#include "backends/ranks/gather.hpp"
#include "backends/ranks/indexed.hpp"
#include "backends/ranks/messages.hpp"
#include "backends/ranks/words.hpp"
#include "families/amo/patterns.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using ranks::Settings;
using testing::ascending;
using testing::scattered;

// State of a library for all ranks; `rank` is the rank whose turn it is.
struct Turn {
  static inline int rank = 0;
  static inline int ranks = 1;
  static inline int completions = 0;
};

// Applies a primitive to a word, and returns the old value.
template <Primitive primitive, class T>
T apply(T& word, T v) {
  const T old = word;
  if constexpr (primitive == Primitive::Add) word = old + v;
  if constexpr (primitive == Primitive::And) word = old & v;
  if constexpr (primitive == Primitive::Or) word = old | v;
  if constexpr (primitive == Primitive::Xor) word = old ^ v;
  if constexpr (primitive == Primitive::Min) word = std::min(old, v);
  if constexpr (primitive == Primitive::Max) word = std::max(old, v);
  if constexpr (primitive == Primitive::Exchange) word = v;
  return old;
}

// Carries out started operations when they are completed, and, if `ordered`, before the next
// operation of the worker.
template <bool ordered>
struct Library {
  static constexpr const char* kName = "fake";
  static constexpr const char* kStandard = "fake-1";
  static constexpr bool kOrdered = ordered;
  static constexpr bool kTwoSided = false;
  struct Memory {
    std::shared_ptr<std::vector<std::vector<std::byte>>> parts;
  };
  using Place = ranks::Place<Memory>;

  template <Primitive primitive, class V>
  static constexpr bool has(bool) {
    return std::is_integral_v<V> && primitive != Primitive::Plain;
  }
  static int rank() { return Turn::rank; }
  static int ranks() { return Turn::ranks; }
  static int ranks_on_node() { return Turn::ranks; }
  static std::string version() { return kName; }
  static bool threads() { return false; }
  static bool private_contexts() { return false; }
  static void finish() {}

  static inline std::int64_t shared_B = std::numeric_limits<std::int64_t>::max();
  static MemoryLimit shared_memory() { return {shared_B, "/dev/shm"}; }
  static Memory allocate(std::int64_t bytes) {
    const auto count = static_cast<std::size_t>(Turn::ranks);
    const std::vector<std::byte> part(static_cast<std::size_t>(bytes));
    return {std::make_shared<std::vector<std::vector<std::byte>>>(count, part)};
  }
  static inline int freed = 0;
  static void free(const Memory&) { ++freed; }
  static std::byte* at(const Place& p) {
    return p.memory->parts->at(static_cast<std::size_t>(p.rank)).data() + p.at;
  }
  static std::byte* own(const Memory& memory) { return at({&memory, Turn::rank, 0}); }
  static void barrier() {}
  static double largest(double value) { return value; }
  static void get(const Place& from, void* to, std::int64_t bytes) {
    ASSERT_LE(static_cast<std::size_t>(from.at + bytes), from.memory->parts->at(0).size());
    std::memcpy(to, at(from), static_cast<std::size_t>(bytes));
  }
  static void put(const Place& to, const void* from, std::int64_t bytes) {
    std::memcpy(at(to), from, static_cast<std::size_t>(bytes));
  }

  class Context {
   public:
    explicit Context(bool) {}
    ~Context() { EXPECT_TRUE(started_.empty()) << "operations are not complete"; }

    template <class T>
    T get(const Place& p) {
      return *reinterpret_cast<T*>(at(p));
    }
    template <class T>
    T load(const Place& p) {
      before();
      return *reinterpret_cast<T*>(at(p));
    }
    template <Primitive primitive, class T>
    T fetch(const Place& p, T v) {
      before();
      return combine<primitive>(p, v);
    }
    template <class T>
    T swap(const Place& p, T expected, T now) {
      before();
      T& word = *reinterpret_cast<T*>(at(p));
      const T old = word;
      if (word == expected) word = now;
      return old;
    }
    template <Primitive primitive, class T>
    void start_update(const Place& p, const T& v) {
      started_.push_back([p, &v] { combine<primitive>(p, v); });
    }
    template <Primitive primitive, class T>
    void start_fetch(const Place& p, const T& v, T& old) const {
      started_.push_back([p, &v, &old] { old = combine<primitive>(p, v); });
    }
    void start_put(const Place& p, const std::byte* from, std::int64_t bytes) const {
      started_.push_back([=] { put(p, from, bytes); });
    }
    void start_get(const Place& p, std::byte* to, std::int64_t bytes) const {
      started_.push_back([=] { Library::get(p, to, bytes); });
    }
    void load_bytes(const Place& p, std::byte* to, std::int64_t bytes) const {
      Library::get(p, to, bytes);
    }
    void complete(const Place&) const { complete(); }
    void complete_all(const Memory&) const { complete(); }

   private:
    void complete() const {
      ++Turn::completions;
      carry_out();
    }
    void before() {
      if (ordered) carry_out();
    }
    void carry_out() const {
      for (const auto& operation : started_) operation();
      started_.clear();
    }
    template <Primitive primitive, class T>
    static T combine(const Place& p, T v) {
      return apply<primitive>(*reinterpret_cast<T*>(at(p)), v);
    }

    mutable std::vector<std::function<void()>> started_;
  };
};
using Ordered = Library<true>;
using Unordered = Library<false>;

// Calls fn in the turn of each rank.
template <class Fn>
void in_turn(const Fn& fn) {
  for (Turn::rank = 0; Turn::rank < Turn::ranks; ++Turn::rank) fn();
  Turn::rank = 0;
}

template <class T>
std::vector<T> read(const ranks::Arrays<Ordered>& arrays, const std::byte* from, std::size_t n) {
  std::vector<T> all(n);
  arrays.read(all.data(), from, std::ssize(all) * std::int64_t{sizeof(T)});
  return all;
}

TEST(Arrays, HavePlacesForEveryByte) {
  for (const int ranks : {1, 4, 7}) {
    Turn::ranks = ranks;
    for (const std::int64_t share : {8, 24, 72, 1000, 8192}) {
      ranks::Arrays<Ordered> arrays;
      // More than the equal parts have, as in index arrays.
      const std::byte* a = arrays.allocate(ranks * share + 5);
      for (std::int64_t byte = 0; byte < ranks * share + 5; ++byte) {
        const auto p = arrays.place_of(a + byte);
        const std::int64_t rank = std::min<std::int64_t>(byte / share, ranks - 1);
        ASSERT_EQ(std::pair(std::int64_t{p.rank}, p.at), std::pair(rank, byte - rank * share));
      }
    }
  }
}

TEST(Arrays, HoldWhatIsWrittenAndFilled) {
  Turn::ranks = 3;
  ranks::Arrays<Ordered> arrays;
  const std::byte* other = arrays.allocate(64);
  const std::byte* a = arrays.allocate(20 * 4);
  std::vector<std::uint32_t> values = ascending<std::uint32_t>(20, 7);
  in_turn([&] { arrays.write(a, values.data(), 80); });
  EXPECT_EQ(read<std::uint32_t>(arrays, a, 20), values);
  // Across the boundary of two parts.
  in_turn([&] { arrays.write(a + 20, values.data(), 12); });
  std::copy_n(values.begin(), 3, values.begin() + 5);
  EXPECT_EQ(read<std::uint32_t>(arrays, a, 20), values);
  in_turn([&] { arrays.fill<std::uint32_t>(a, 20, 5, 99); });
  for (std::uint32_t i = 0; i < 20; ++i) values[i] = fill_value(i % 5, 99);
  EXPECT_EQ(read<std::uint32_t>(arrays, a, 20), values);
  EXPECT_EQ(read<std::uint64_t>(arrays, other, 8), std::vector<std::uint64_t>(8));
}

TEST(Arrays, AreFreedAtTheNextAllocation) {
  Turn::ranks = 2;
  ranks::Arrays<Ordered> arrays;
  Ordered::freed = 0;
  const std::byte* a = arrays.allocate(64);
  const std::byte* b = arrays.allocate(64);
  arrays.release(a);
  EXPECT_EQ(Ordered::freed, 0);
  const std::byte* c = arrays.allocate(64);
  EXPECT_EQ(Ordered::freed, 1);
  EXPECT_NE(c, b);
  arrays.release(b);
  arrays.release(c);
  arrays.allocate(8);
  EXPECT_EQ(Ordered::freed, 3);
}

TEST(Arrays, AreRefusedBeforeTheSharedMemoryIsExceeded) {
  Turn::ranks = 2;
  ranks::Arrays<Ordered> arrays;
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  Ordered::shared_B = 16 * kMiB;  // of which ranks may need 4 MiB each for messages
  const std::byte* first = arrays.allocate(4 * kMiB);
  arrays.allocate(4 * kMiB);
  const auto message = testing::refusal<MemoryError>([&] { arrays.allocate(16); });
  // Libraries reserve memory, which is not used before it is touched.
  EXPECT_TRUE(
      testing::contains(message, "8388624 bytes of shared memory, but /dev/shm has 8388608"))
      << message;
  EXPECT_TRUE(testing::contains(message, "--shm-size")) << message;
  arrays.release(first);
  arrays.allocate(4 * kMiB);
  Ordered::shared_B = std::numeric_limits<std::int64_t>::max();
}

// Operations of `Words` on plain memory, one after the other.
template <Primitive primitive>
struct Serial {
  static constexpr Primitive kPrimitive = primitive;
  template <class T>
  static T load(const T* at) {
    return *at;
  }
  template <class T>
  static T fetch(T* at, T v) {
    return apply<primitive>(*at, v);
  }
  template <class T>
  static bool swap(T* at, T& expected, T now) {
    const bool same = *at == expected;
    expected = *at;
    if (same) *at = now;
    return same;
  }
};

constexpr std::int64_t kIters = 14;

template <class T>
struct Contents {
  std::vector<T> values;
  std::vector<T> index;
  std::vector<std::uint64_t> tally;
  bool operator==(const Contents&) const = default;
};

template <class T>
Contents<T> initial(std::int64_t workers) {
  const std::int64_t count = workers * kIters;
  Contents<T> c;
  for (std::int64_t i = 0; i < count; ++i) {
    c.values.push_back(static_cast<T>(scattered(i, 5, 1 << 20)));
  }
  for (std::int64_t i = 0; i <= count; ++i) {
    c.index.push_back(static_cast<T>(scattered(i, 3, count)));
  }
  c.tally.assign(static_cast<std::size_t>(workers * kTallies), 3);
  return c;
}

AmoArgs arguments(std::int64_t workers) {
  AmoArgs args;
  args.hot = 3;
  args.shared = true;
  args.operand = 0x2AAAB;
  args.tally_stride = kTallies;
  args.workers = workers;
  return args;
}

// The expected contents after the workers' parts, in the order in which ranks take turns.
template <class Pattern, class T, Primitive primitive, bool kUsed>
Contents<T> expected(int workers, int shift) {
  Contents<T> c = initial<T>(workers);
  AmoArgs args = arguments(workers);
  args.values = c.values.data();
  args.index = c.index.data();
  for (int w = 0; w < workers; ++w) {
    const int worker = (w + shift) % workers;
    Words<Serial<primitive>, T, T, kUsed> words(args, neutral_of(primitive));
    Pattern::run(words, args, {worker * kIters, (worker + 1) * kIters}, worker);
    words.add_to(&c.tally[static_cast<std::size_t>(worker) * kTallies]);
    c.tally[static_cast<std::size_t>(worker * kTallies + kIterations)] += kIters;
  }
  return c;
}

// Copies values to an array over all ranks.
template <class L, class T>
std::byte* over_all(const std::vector<T>& values) {
  ranks::Arrays<L>& arrays = ranks::arrays<L>();
  const std::int64_t bytes = std::ssize(values) * std::int64_t{sizeof(T)};
  std::byte* const address = arrays.allocate(bytes);
  in_turn([&] { arrays.write(address, values.data(), bytes); });
  return address;
}

template <class L, class Pattern, class T, Primitive primitive, bool kUsed>
Contents<T> over_ranks(const Settings& settings) {
  Contents<T> c = initial<T>(Turn::ranks);
  AmoArgs args = arguments(Turn::ranks);
  args.values = over_all<L>(c.values);
  args.index = over_all<L>(c.index);
  args.tally = reinterpret_cast<std::uint64_t*>(over_all<L>(c.tally));
  Settings own = settings;
  in_turn([&] {
    ranks::launch<L, Pattern, T, T, primitive, kUsed>(&args, {0, Turn::ranks * kIters}, 1, &own);
  });
  ranks::Arrays<L>& arrays = ranks::arrays<L>();
  const auto copy_back = [&](auto& to, const void* from) {
    const auto* address = static_cast<const std::byte*>(from);
    arrays.read(to.data(), address, std::ssize(to) * std::int64_t{sizeof to[0]});
    arrays.release(address);
  };
  copy_back(c.values, args.values);
  copy_back(c.index, args.index);
  copy_back(c.tally, args.tally);
  return c;
}

template <class Pattern, class T, Primitive primitive, bool kUsed>
void expect_the_same_as_in_one_memory() {
  for (const int ranks : {1, 2, 5}) {
    Turn::ranks = ranks;
    for (const std::int64_t batch : {1, 3, 1000}) {
      for (const int shift : {0, 1}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, batches of " + std::to_string(batch) +
                     ", shift " + std::to_string(shift));
        const Settings settings{batch, false, shift};
        const auto wanted = expected<Pattern, T, primitive, kUsed>(ranks, shift);
        EXPECT_EQ((over_ranks<Ordered, Pattern, T, primitive, kUsed>(settings)), wanted);
        EXPECT_EQ((over_ranks<Unordered, Pattern, T, primitive, kUsed>(settings)), wanted);
      }
    }
  }
}

template <class Pattern, Primitive primitive>
void try_primitive() {
  SCOPED_TRACE("primitive " + std::to_string(static_cast<int>(primitive)));
  expect_the_same_as_in_one_memory<Pattern, std::uint64_t, primitive, true>();
  if constexpr (primitive != Primitive::Cas && primitive != Primitive::CasRetry) {
    expect_the_same_as_in_one_memory<Pattern, std::uint64_t, primitive, false>();
  }
}

template <class Pattern>
void try_pattern(const char* name) {
  SCOPED_TRACE(name);
  try_primitive<Pattern, Primitive::Add>();
  try_primitive<Pattern, Primitive::Xor>();
  try_primitive<Pattern, Primitive::CasRetry>();
}

TEST(Carrier, DoesTheSameAsInOneMemory) {
  try_pattern<amo::Rand>("rand");
  try_pattern<amo::Strided>("stride1");
  try_pattern<amo::Central>("central");
  try_pattern<amo::Chase>("ptrchase");
  try_pattern<amo::Scatter>("scatter");
  try_pattern<amo::Gather>("gather");
  try_pattern<amo::ScatterGather>("sg");
}

TEST(Carrier, HasAllPrimitivesAndWidths) {
  try_primitive<amo::Rand, Primitive::And>();
  try_primitive<amo::Rand, Primitive::Or>();
  try_primitive<amo::Rand, Primitive::Max>();
  try_primitive<amo::Rand, Primitive::Exchange>();
  try_primitive<amo::Rand, Primitive::Cas>();
  // Reads indices by fetch-min with the neutral operand.
  try_primitive<amo::ScatterGather, Primitive::Min>();
  expect_the_same_as_in_one_memory<amo::Rand, std::uint32_t, Primitive::Add, true>();
  expect_the_same_as_in_one_memory<amo::Scatter, std::uint32_t, Primitive::Min, false>();
}

TEST(Carrier, CompletesInBatches) {
  Turn::ranks = 2;
  for (const auto& [batch, wanted] : {std::pair{1, 28}, std::pair{5, 6}, std::pair{100, 2}}) {
    Turn::completions = 0;
    over_ranks<Ordered, amo::Rand, std::uint64_t, Primitive::Add, false>({batch, false, 0});
    EXPECT_EQ(Turn::completions, wanted) << "batches of " << batch;
  }
}

// Messages between ranks 0 and 2, and between 3 and 1; ranks 0 and 3 are the origins.
class Messages : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static constexpr std::int64_t kRanks = 5;
  static constexpr std::int64_t kWords = 3;

  Messages() {
    Turn::ranks = kRanks;
    ends_[0] = {2, 0, true};
    ends_[2] = {0, 0, false};
    ends_[3] = {1, 1, true};
    ends_[1] = {3, 1, false};
    args_.window = GetParam();
    args_.ranks = kRanks;
    args_.ends = ends_.data();
  }

  void place(std::int64_t words) {
    words_ = words;
    args_.size_B = 8 * words;
    slots_ = ascending<std::uint64_t>(kRanks * (args_.window + 1) * words, 1000);
    places_ = ascending<std::uint64_t>(kRanks * args_.window * words, 1000000);
    args_.slots = over_all<Ordered>(slots_);
    args_.places = over_all<Ordered>(places_);
    args_.sent =
        reinterpret_cast<std::uint64_t*>(over_all<Ordered>(std::vector<std::uint64_t>(kRanks)));
  }
  template <class Pattern>
  void launch(Range range) {
    ranks::Settings settings;
    in_turn([&] { ranks::MessagePlan<Ordered>(args_, range).template run<Pattern>(settings); });
  }
  std::int64_t count() const { return 2 * args_.window; }
  std::uint64_t& slot(std::int64_t rank, std::int64_t number, std::int64_t word) {
    return slots_[static_cast<std::size_t>((rank * (args_.window + 1) + number) * words_ + word)];
  }
  std::uint64_t& destination(std::int64_t rank, std::int64_t number, std::int64_t word) {
    return places_[static_cast<std::size_t>((rank * args_.window + number) * words_ + word)];
  }
  void expect_contents(const std::vector<std::uint64_t>& sent) {
    const auto& all = ranks::arrays<Ordered>();
    EXPECT_EQ(read<std::uint64_t>(all, args_.slots, slots_.size()), slots_);
    EXPECT_EQ(read<std::uint64_t>(all, args_.places, places_.size()), places_);
    const auto* counts = reinterpret_cast<const std::byte*>(args_.sent);
    EXPECT_EQ(read<std::uint64_t>(all, counts, sent.size()), sent);
  }
  // Sends all messages in some rounds, and expects what `deliver` does for each of their words.
  template <class Pattern, class Deliver>
  void expect_delivered(std::int64_t words, std::int64_t rounds, const Deliver& deliver) {
    place(words);
    for (std::int64_t round = 0; round < rounds; ++round) launch<Pattern>({0, count()});
    for (const auto& [origin, target] : {std::pair{0, 2}, std::pair{3, 1}}) {
      for (std::int64_t m = 0; m < rounds * args_.window; ++m) {
        const std::int64_t number = m % args_.window;
        for (std::int64_t w = 0; w < words; ++w) {
          deliver(slot(origin, m % (args_.window + 1), w), slot(target, number, w),
                  destination(origin, number, w), destination(target, number, w));
        }
      }
    }
    const auto sent = static_cast<std::uint64_t>(rounds * args_.window);
    expect_contents({sent, 0, 0, sent, 0});
  }

  MessageArgs args_;
  std::vector<MessageEnd> ends_ = std::vector<MessageEnd>(kRanks);
  std::int64_t words_ = 0;
  std::vector<std::uint64_t> slots_;
  std::vector<std::uint64_t> places_;
};

TEST_P(Messages, PutEachSlotToThePlaceOfItsNumber) {
  expect_delivered<messages::Put>(kWords, 5,
                                  [](auto& own, auto&, auto&, auto& theirs) { theirs = own; });
}

TEST_P(Messages, GetFromTheTarget) {
  expect_delivered<messages::Get>(kWords, 1,
                                  [](auto&, auto& theirs, auto& own, auto&) { own = theirs; });
}

TEST_P(Messages, AddAndReturnTheOldValue) {
  expect_delivered<messages::FetchAdd>(
      1, 3, [](auto& own, auto&, auto&, auto& theirs) { own = theirs++; });
}

TEST_P(Messages, AreThoseOfTheRange) {
  place(1);
  // All messages of the first pair and the first one of the second pair.
  launch<messages::Put>({0, args_.window + 1});
  for (std::int64_t m = 0; m < args_.window; ++m) destination(2, m, 0) = slot(0, m, 0);
  destination(1, 0, 0) = slot(3, 0, 0);
  expect_contents({static_cast<std::uint64_t>(args_.window), 0, 0, 1, 0});
}

TEST_P(Messages, AreNoneForAnotherNumberOfRanks) {
  place(1);
  args_.ranks = kRanks + 1;
  launch<messages::Put>({0, count()});
  expect_contents({0, 0, 0, 0, 0});
}

INSTANTIATE_TEST_SUITE_P(Windows, Messages, ::testing::Values(1, 2, 7));

// Pattern and arrays of gathers and scatters over ranks.
struct Elements {
  SpatterArgs args;
  std::vector<std::int64_t> positions;  // in the sparse array, by instance and index
  std::vector<std::uint64_t> sparse;
  std::vector<std::uint64_t> dense;
};

constexpr std::int64_t kInstances = 11;

Elements elements(SpatterOp op, bool outer) {
  const std::vector<std::int64_t> index{3, 0, 5};
  const std::vector<std::int64_t> inner{2, 0, 1};
  const std::vector<std::int64_t> deltas{8, 16};
  const std::vector<std::int64_t> prefix{0, 8};
  Elements e;
  e.args.length = std::ssize(index);
  e.args.wrap = 12;
  e.args.dense_stride = e.args.wrap * e.args.length;
  for (std::int64_t n = 0; n < kInstances; ++n) {
    const std::int64_t base = 2 + n / 2 * 24 + n % 2 * 8;
    for (std::size_t j = 0; j < index.size(); ++j) {
      e.positions.push_back(base + index[outer ? static_cast<std::size_t>(inner[j]) : j]);
    }
  }
  e.sparse = ascending<std::uint64_t>(e.positions.back() + 6, 1000);
  e.dense = ascending<std::uint64_t>(Turn::ranks * e.args.dense_stride, 1000000);
  SpatterArgs::Walk walk{2, 2, nullptr, nullptr, 24};
  walk.delta = reinterpret_cast<const std::int64_t*>(over_all<Ordered>(deltas));
  walk.prefix = reinterpret_cast<const std::int64_t*>(over_all<Ordered>(prefix));
  const void* const list = over_all<Ordered>(outer ? inner : index);
  if (outer) e.args.outer_index = over_all<Ordered>(index);
  (gathers(op) ? e.args.gather_walk : e.args.scatter_walk) = walk;
  (gathers(op) ? e.args.gather_index : e.args.scatter_index) = list;
  std::byte* const sparse = over_all<Ordered>(e.sparse);
  if (gathers(op)) {
    e.args.source = sparse;
  } else {
    e.args.target = sparse;
  }
  e.args.dense = over_all<Ordered>(e.dense);
  return e;
}

template <SpatterOp op>
void expect_moved(bool outer, std::int64_t batch, Range range) {
  Elements e = elements(op, outer);
  ranks::Settings settings{batch, false, 0};
  const auto* sparse = static_cast<const std::byte*>(gathers(op) ? e.args.source : e.args.target);
  using G = ranks::Planned<ranks::Gather<Ordered, ranks::Single, std::uint64_t, std::int64_t, op>>;
  if (Turn::ranks == 1) {
    // A launch does nothing for another range than the prepared one.
    G::prepare(&e.args, range, 1, &settings);
    G::launch(&e.args, {range.begin, range.end + 1}, 1, &settings);
    EXPECT_EQ(read<std::uint64_t>(ranks::arrays<Ordered>(), sparse, e.sparse.size()), e.sparse);
    G::launch(&e.args, range, 1, &settings);
  } else {
    in_turn([&] {
      auto moves = ranks::moves_of<Ordered, std::uint64_t, std::int64_t>(e.args, op, range);
      ranks::Single<Ordered, std::uint64_t>(sparse, gathers(op), std::move(moves)).run(settings);
    });
  }
  for (int rank = 0; rank < Turn::ranks; ++rank) {
    const Range own = contiguous_part(range.end - range.begin, Turn::ranks, rank);
    for (std::int64_t n = range.begin + own.begin; n < range.begin + own.end; ++n) {
      for (std::int64_t j = 0; j < e.args.length; ++j) {
        const std::int64_t row = rank * e.args.wrap + n % e.args.wrap;
        auto& dense = e.dense[static_cast<std::size_t>(row * e.args.length + j)];
        const std::int64_t at = e.positions[static_cast<std::size_t>(n * e.args.length + j)];
        auto& owned = e.sparse[static_cast<std::size_t>(at)];
        (gathers(op) ? dense : owned) = gathers(op) ? owned : dense;
      }
    }
  }
  const auto& all = ranks::arrays<Ordered>();
  EXPECT_EQ(read<std::uint64_t>(all, sparse, e.sparse.size()), e.sparse);
  EXPECT_EQ(read<std::uint64_t>(all, static_cast<const std::byte*>(e.args.dense), e.dense.size()),
            e.dense);
}

TEST(Gather, MovesEachElementOfTheRange) {
  for (const int ranks : {1, 2, 5}) {
    Turn::ranks = ranks;
    for (const std::int64_t batch : {1, 4, 1000}) {
      for (const Range range : {Range{0, kInstances}, Range{3, 4}, Range{2, 9}}) {
        expect_moved<SpatterOp::Gather>(false, batch, range);
        expect_moved<SpatterOp::Scatter>(false, batch, range);
        expect_moved<SpatterOp::MultiGather>(true, batch, range);
        expect_moved<SpatterOp::MultiScatter>(true, batch, range);
      }
    }
  }
}

TEST(Gather, CompletesInBatches) {
  Turn::ranks = 5;
  // One more completion for each rank, whose last batch is smaller.
  for (const auto& [batch, most] : {std::pair{1, 33}, std::pair{4, 13}, std::pair{1000, 5}}) {
    Turn::completions = 0;
    expect_moved<SpatterOp::Gather>(false, batch, {0, kInstances});
    EXPECT_LE(Turn::completions, most);
    EXPECT_GT(Turn::completions, 0);
  }
}

// a[x] = b[y] + 3 c for the elements of a range, without an index array for c.
void expect_computed(std::int64_t n, Range range) {
  std::vector<double> a(static_cast<std::size_t>(n), 1.0);
  std::vector<double> b(a.size());
  std::vector<double> c(a.size());
  std::vector<std::int32_t> x(a.size());
  std::vector<std::int32_t> y(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    b[i] = static_cast<double>(2 * i);
    c[i] = static_cast<double>(5 * i + 1);
    x[i] = static_cast<std::int32_t>(a.size() - 1 - i);
    y[i] = static_cast<std::int32_t>(i * i % a.size());
  }
  StreamingArgs args;
  args.stream[0] = over_all<Ordered>(a);
  args.stream[1] = over_all<Ordered>(b);
  args.stream[2] = over_all<Ordered>(c);
  args.index[0] = over_all<Ordered>(x);
  args.index[1] = over_all<Ordered>(y);
  args.rows = n;
  args.alpha = 3.0;
  const ranks::Accesses accesses{{0, 1, ranks::kDirect}, false};
  using Kernel = ranks::IndexedKernel<Ordered, ranks::Single, double, ranks::Triad, 3>;
  in_turn([&] { Kernel(args, range, accesses).run({4, false, 0}); });
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const auto k = static_cast<std::size_t>(i);
    a[static_cast<std::size_t>(x[k])] = b[static_cast<std::size_t>(y[k])] + 3.0 * c[k];
  }
  const auto* written = static_cast<const std::byte*>(args.stream[0]);
  EXPECT_EQ(read<double>(ranks::arrays<Ordered>(), written, a.size()), a) << n;
}

TEST(Indexed, ComputesTheElementsOfTheRange) {
  for (const int ranks : {1, 2, 5}) {
    Turn::ranks = ranks;
    for (const std::int64_t n : {1, 4, 33}) {
      expect_computed(n, {0, n});
      expect_computed(n, {n / 3, n - n / 4});
    }
  }
}

TEST(Device, HasEntriesForWhatTheLibraryHas) {
  std::vector<DeviceEntry> entries;
  ranks::add_atomics<Ordered>(entries);
  ranks::add_gathers<Ordered, ranks::Single>(entries, "single");
  ranks::add_indexed<Ordered, ranks::Single>(entries, "single");
  ranks::add_messages<Ordered>(entries);
  std::set<std::string> seen;
  for (const DeviceEntry& e : entries) {
    const std::string kernel = e.kernel;
    const std::string name =
        kernel + " " + e.dtype + " " +
        (kernel.starts_with("amo.") ? e.template_variant : std::string(e.index) + e.variant);
    EXPECT_TRUE(seen.insert(name).second) << name;
    const bool moves = kernel.starts_with("spatter.") || kernel.starts_with("raider.");
    EXPECT_EQ(std::string(e.dtype).starts_with("float"), moves);
  }
  EXPECT_EQ(seen.count("amo.rand uint64 exchange/relaxed/unused"), 1U);
  EXPECT_EQ(seen.count("amo.sg uint64 exchange/relaxed/unused"), 0U);
  EXPECT_EQ(seen.count("amo.ptrchase uint32 add/relaxed/unused"), 0U);
  EXPECT_EQ(seen.count("amo.gather uint32 cas-retry/relaxed/used"), 1U);
  EXPECT_EQ(seen.count("amo.rand uint64 plain/relaxed/used"), 0U);
  EXPECT_EQ(seen.count("spatter.gather float32 int64single"), 1U);
  EXPECT_EQ(seen.count("raider.gather_add@release float64 int32single"), 1U);
  EXPECT_EQ(seen.count("raider.triad float64 single"), 0U);
  EXPECT_EQ(seen.count("messages.fetch_add uint64 rma"), 1U);
  EXPECT_EQ(seen.count("messages.send uint64 two-sided"), 0U);
}

TEST(Device, IsOnePerSettings) {
  Device& a = ranks::device<Ordered>({1, false, 0});
  EXPECT_EQ(&a, &ranks::device<Ordered>({1, false, 0}));
  EXPECT_NE(&a, &ranks::device<Ordered>({2, false, 0}));
  EXPECT_NE(&a, &ranks::device<Ordered>({1, false, 1}));
  EXPECT_FALSE(a.reusable());
  EXPECT_EQ(a.ranks(), Turn::ranks);
}

}  // namespace
}  // namespace memkern
