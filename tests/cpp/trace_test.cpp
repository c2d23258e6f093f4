// Traces of programs, written byte by byte.
#include "core/trace.hpp"

#include "support.hpp"

namespace memkern {
namespace {

using testing::at;
using testing::contains;
using testing::refusal;
using testing::scattered;

using Numbers = std::vector<std::uint64_t>;
constexpr unsigned kSite = 1, kAddress = 2, kValue = 4, kDefined = 8, kLength = 16, kGap = 32;

std::uint64_t zigzag(std::int64_t n) {
  return n >= 0 ? static_cast<std::uint64_t>(n) * 2 : ~static_cast<std::uint64_t>(n) * 2 + 1;
}

std::string word(std::uint64_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A part of a thread, as the program writes it.
class Part {
 public:
  explicit Part(std::uint64_t thread, std::uint64_t left_out = 0)
      : bytes_(word(thread) + word(left_out)) {}

  // An access with a number for each flag, in the order of the format.
  Part& event(unsigned flags, const Numbers& numbers) {
    bytes_ += static_cast<char>(0x80 | flags);
    for (std::uint64_t n : numbers) {
      for (; n > 0x7f; n >>= 7) bytes_ += static_cast<char>(n | 0x80);
      bytes_ += static_cast<char>(n);
    }
    return *this;
  }
  // The first access of a site.
  Part& first(std::uint64_t site, std::uint64_t caller, std::uint64_t kind, std::int64_t address) {
    return event(kSite | kDefined | kAddress, {site, caller, kind, zigzag(address)});
  }
  Part& run(int accesses) {
    bytes_ += static_cast<char>(accesses);
    return *this;
  }
  std::string text() const { return bytes_ + std::string((1 << 18) - bytes_.size(), '\0'); }

 private:
  std::string bytes_;
};

constexpr std::uint64_t kInt32Read = kReads | 4 << 3;
constexpr std::uint64_t kDoubleRead = kReads | 8 << 3;
constexpr std::uint64_t kDoubleWritten = kWrites | 8 << 3;

class TraceFile : public testing::FakeRoot {
 protected:
  const Trace& read(const std::string& parts) {
    write_trace(parts);
    trace_ = std::make_unique<Trace>(path());
    return *trace_;
  }
  std::string why(const std::string& parts) {
    return refusal<InputError>([&] { read(parts); });
  }
  void write_trace(const std::string& parts) {
    write("/trace", head_ + std::string((1 << 16) - head_.size(), '\0') + parts);
  }
  std::string path() const { return root_ + "/trace"; }

  std::string head_ = "memkern trace 1\n400000 2000 /bin/app\n";

 private:
  std::unique_ptr<Trace> trace_;
};

TEST_F(TraceFile, HasAccessesWithWhatTheirFlagsSay) {
  Part part(0);
  part.first(0, 0x400010, kInt32Read, 1000).first(1, 0x400020, kDoubleWritten, 5000);
  // The distance before the first address is this address.
  part.event(kSite | kAddress, {0, zigzag(4 - 1000)}).event(kAddress, {zigzag(8 - 5000)});
  part.run(5).event(kLength, {16});
  const Trace& trace = read(part.text() + word(~std::uint64_t{0}) + word(0) + "{\"1\": 2}");
  EXPECT_EQ(trace.head(), head_);
  EXPECT_EQ(trace.text(), "{\"1\": 2}");
  EXPECT_EQ(trace.threads(), 1);
  EXPECT_EQ(trace.left_out(), 0);
  ASSERT_EQ(trace.sites().size(), 2U);
  const Site& first = trace.sites()[0];
  EXPECT_EQ(first.caller, 0x400010U);
  EXPECT_EQ(std::tuple(first.how, first.size, first.count, first.bytes),
            std::tuple(kReads, 4U, 5, 20));
  EXPECT_EQ(std::pair(first.low, first.high), std::pair(1000UL, 1016UL));
  EXPECT_EQ(std::pair(first.delta[0], first.deltas[0]), std::pair(4L, 4L));
  EXPECT_EQ(first.deltas[1], 0);
  EXPECT_TRUE(first.dependencies.empty());
  const Site& second = trace.sites()[1];
  EXPECT_EQ(std::tuple(second.how, second.size, second.count, second.bytes),
            std::tuple(kWrites, 8U, 5, 4 * 8 + 16));
  EXPECT_EQ(std::pair(second.low, second.high), std::pair(5000UL, 5032UL));
  EXPECT_EQ(second.threads, std::vector<std::int64_t>{5});
}

TEST_F(TraceFile, KeepsTheMostFrequentDistances) {
  Part part(0);
  part.first(0, 1, kDoubleRead, 1 << 20);
  std::map<std::int64_t, std::int64_t> numbers;
  std::int64_t last = 1 << 20;
  for (std::int64_t k = 0; k < 1000; ++k) {
    // Two distances, and others that occur once each.
    const std::int64_t delta = k % 4 == 3 ? 1000 + k : k % 4 == 0 ? -16 : 8;
    ++numbers[delta];
    part.event(kAddress, {zigzag(delta - last)});
    last = delta;
  }
  const Site& site = read(part.text()).sites()[0];
  for (const auto& [k, delta] : {std::pair(0, 8), std::pair(1, -16)}) {
    EXPECT_EQ(site.delta[at(k)], delta);
    EXPECT_EQ(site.deltas[at(k)], numbers[delta]);
  }
}

// An index array at 1000, and what it indexes at 8000 in doubles.
constexpr std::int64_t kIndices[] = {3, 0, 7, -1, 2, 5, 12, 1, 9, 4};

Part gathers() {
  Part part(0);
  std::int64_t last = 0, step = 0, of_last = 0, of_step = 0;
  for (std::int64_t k = 0; k < std::ssize(kIndices); ++k) {
    const std::int64_t index = kIndices[k], load = 1000 + 4 * k, address = 8000 + 8 * index;
    const auto value = static_cast<std::uint32_t>(index);
    if (k == 0) {
      part.event(kSite | kDefined | kAddress | kValue, {0, 1, kInt32Read, zigzag(load), value});
      part.first(1, 2, kDoubleRead, address);
    } else {
      part.event(kSite | kAddress | kValue, {0, zigzag(load - last - step), value});
      part.event(kSite | kAddress, {1, zigzag(address - of_last - of_step)});
    }
    step = load - last, of_step = address - of_last;
    last = load, of_last = address;
  }
  return part;
}

TEST_F(TraceFile, HasAddressesThatDependOnLoadedValues) {
  const Trace& trace = read(gathers().text());
  ASSERT_EQ(trace.sites()[1].dependencies.size(), 1U);
  const Dependency& found = trace.sites()[1].dependencies[0];
  EXPECT_EQ(found.on, 0U);
  EXPECT_EQ(found.scale, 8);
  // A pair is compared from the third access on, with the distance of its loads from the fourth on.
  EXPECT_EQ(found.all_tries, std::ssize(kIndices) - 2);
  EXPECT_EQ(found.all_hits, found.all_tries);
  EXPECT_EQ(found.tries, std::ssize(kIndices) - 3);
  EXPECT_EQ(found.hits, found.tries);
  EXPECT_TRUE(trace.sites()[0].dependencies.empty());
}

TEST_F(TraceFile, HasTheFirstAccessesOfASite) {
  const Trace& trace = read(gathers().text());
  std::vector<Trace::Sequence> found(2);
  found[0].site = 1;
  found[1].site = 0;
  found[1].other = kNoSite;
  trace.follow(0, found, 4);
  EXPECT_EQ(found[0].at, (Numbers{8024, 8000, 8056, 7992}));
  EXPECT_EQ(found[0].from, (Numbers{1000, 1004, 1008, 1012}));
  EXPECT_EQ(found[0].value, (std::vector<std::int64_t>{3, 0, 7, (1LL << 32) - 1}));
  EXPECT_EQ(found[1].at, (Numbers{1000, 1004, 1008, 1012}));
  EXPECT_TRUE(found[1].from.empty());
  found.resize(1);
  found[0] = {1, 0, {}, {}, {}};
  trace.follow(0, found, 1000);
  EXPECT_EQ(std::ssize(found[0].at), std::ssize(kIndices));
  const auto refused_for = [&](int thread, std::uint32_t site) {
    std::vector<Trace::Sequence> asked(1);
    asked[0].site = site;
    return refusal<InputError>([&] { trace.follow(thread, asked, 4); });
  };
  EXPECT_TRUE(contains(refused_for(1, 0), "has no thread 1"));
  EXPECT_TRUE(contains(refused_for(-1, 0), "has no thread -1"));
  EXPECT_TRUE(contains(refused_for(0, 2), "has no such instruction"));
}

TEST_F(TraceFile, CountsTheAccessesThatWereLeftOut) {
  Part first(0, 1000);
  first.first(0, 1, kDoubleRead, 800).run(3);
  Part second(0, 7);
  second.event(kGap | kAddress, {300, zigzag(80)}).event(kGap, {20});
  Part other(1, 5);
  // What a part left out at its end is repeated by the thread's next event.
  const Trace& trace = read(first.text() + other.text() + second.text());
  EXPECT_EQ(trace.left_out(), 300 + 20 + 7 + 5);
  EXPECT_EQ(trace.sites()[0].count, 6);
}

TEST_F(TraceFile, HasSitesOfSeveralThreads) {
  constexpr std::uint64_t kAdded = kReads | kWrites | kAtomic | 8 << 3;
  Part zero(0), two(2);
  zero.first(0, 10, kDoubleRead, 800).first(1, 20, kAdded, 6400).event(kSite | kAddress, {1, 1});
  // The same instructions have other numbers in another thread.
  two.first(0, 20, kAdded, 6408).first(1, 10, kDoubleRead, 808).run(1).event(kSite, {0});
  const Trace& trace = read(two.text() + zero.text());
  EXPECT_EQ(trace.threads(), 3);
  ASSERT_EQ(trace.sites().size(), 2U);
  EXPECT_EQ(trace.sites()[0].caller, 10U);
  EXPECT_EQ(trace.sites()[0].threads, (std::vector<std::int64_t>{1, 0, 2}));
  EXPECT_EQ(trace.sites()[1].threads, (std::vector<std::int64_t>{2, 0, 2}));
  // A line of both threads, and a line of each.
  const AtomicLines atomics = trace.atomics();
  EXPECT_EQ(std::tuple(atomics.accesses, atomics.lines, atomics.shared), std::tuple(4, 3, 1));
}

TEST_F(TraceFile, IsRefused) {
  const std::string part = gathers().text();
  EXPECT_TRUE(contains(why(part.substr(0, 1000)), "is cut off after 66536 bytes"));
  EXPECT_TRUE(contains(why(Part(1 << 16).text()), "is damaged: byte 65536 is no thread"));
  const auto damaged = [&](const Part& damage) {
    return why(part + damage.text()) == path() + " is damaged in the part at byte 327680";
  };
  EXPECT_TRUE(damaged(Part(0).event(kSite, {2})));
  EXPECT_TRUE(damaged(Part(1).run(1)));
  EXPECT_TRUE(damaged(Part(1).first(1, 1, kDoubleRead, 0)));
  head_[8] = 'T';
  EXPECT_TRUE(contains(why(part), "is not a trace of memkern, or one of another version"));
  write("/trace", "memkern trace 1\n");
  EXPECT_TRUE(contains(refusal<InputError>([&] { const Trace trace(path()); }), "is too short"));
  EXPECT_TRUE(contains(refusal<InputError>([&] { const Trace trace(root_); }), "is too short"));
  const std::string missing = root_ + "/missing";
  EXPECT_EQ(refusal<InputError>([&] { const Trace trace(missing); }), missing + " can't be read");
}

// Numbers with which sums, differences and quotients would overflow.
TEST_F(TraceFile, MayHaveAnyNumbers) {
  constexpr std::uint64_t kGreatest = ~std::uint64_t{0} / 2, kInt64Read = kReads | 8 << 3;
  Part part(0, kGreatest), other(1), third(2);
  part.event(kSite | kDefined | kGap, {kGreatest, 0, 5, kInt64Read}).event(kGap, {kGreatest});
  part.event(kLength, {~std::uint64_t{0}});
  // Values 2, 1, 0, and addresses 0, 0, -2^63.
  other.event(kSite | kDefined | kAddress | kValue, {0, 1, kInt64Read, 16, 2});
  other.first(1, 2, kDoubleRead, 0);
  other.event(kSite | kValue, {0, 1}).event(kSite, {1});
  other.event(kSite | kValue, {0, 0}).event(kSite | kAddress, {1, ~std::uint64_t{0}});
  // Values 0, 2^63 - 1, -2^31.
  third.event(kSite | kDefined | kAddress | kValue, {0, 1, kInt64Read, 16, 0});
  third.first(1, 3, kDoubleRead, 800);
  third.event(kSite | kValue, {0, kGreatest}).event(kSite, {1});
  third.event(kSite | kLength | kValue, {0, 4, 1U << 31}).event(kSite, {1});
  EXPECT_EQ(read(part.text() + other.text() + third.text()).threads(), 3);
}

TEST_F(TraceFile, OfDamagedBytesIsReadOrRefused) {
  const std::string part = gathers().text();
  int refused = 0;
  for (std::int64_t k = 0; k < 300; ++k) {
    std::string damaged = part;
    for (std::int64_t flip = 0; flip < 3; ++flip) {
      damaged[at(scattered(k, flip, 150))] ^= static_cast<char>(1 + scattered(k, flip + 3, 255));
    }
    write_trace(damaged);
    try {
      const Trace trace(path());
      for (int thread = 0; thread < std::min(trace.threads(), 3); ++thread) {
        std::vector<Trace::Sequence> all(trace.sites().size());
        trace.follow(thread, all, 100);
      }
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_LT(refused, 290);
}

}  // namespace
}  // namespace memkern
