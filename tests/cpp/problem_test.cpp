// What every family gets from Problem, tried on one with two arrays.
#include "core/problem.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using testing::refusal;
using testing::says;

class Tiny : public Problem {
 public:
  Tiny(const Team& team, DType type, std::int64_t columns) : Problem(team, Placement{}) {
    add_array("read", type, columns, false, false);
    add_array("written", type, columns + 1, true, true);
    commit();
  }
  const void* args() const override { return this; }
  std::int64_t count() const override { return 1; }
  using Problem::own_indices;
};

class TooLarge : public Problem {
 public:
  TooLarge(const Team& team, std::int64_t columns) : Problem(team, Placement{}) {
    add_array("huge", DType::F64, columns, true, false);
  }
  const void* args() const override { return this; }
  std::int64_t count() const override { return 1; }
};

double closed_form(const Array& a, std::int64_t column) {
  const std::uint64_t product = static_cast<std::uint64_t>(column) * 2654435761U + a.salt;
  return static_cast<double>((product % (std::uint64_t{1} << 32)) >> 9);
}

class Types : public ::testing::TestWithParam<DType> {
 protected:
  Team team_{{3, "none"}};
};

TEST_P(Types, FillsByPosition) {
  Tiny problem(team_, GetParam(), 1001);
  problem.fill(true);
  const Array& read = problem.array("read");
  const Array& written = problem.array("written");
  EXPECT_EQ(read.rows, 1);
  EXPECT_EQ(written.rows, 3);
  EXPECT_NE(read.salt, written.salt);
  for (const Array* a : {&read, &written}) {
    for (std::int64_t i = 0; i < a->rows * a->columns; ++i) {
      ASSERT_EQ(problem.peek(*a, i), closed_form(*a, i % a->columns)) << a->name << " " << i;
    }
  }
}

TEST_P(Types, FillsResultsOnlyOnDemand) {
  Tiny problem(team_, GetParam(), 10);
  problem.fill(true);
  const Array& written = problem.array("written");
  problem.poke(written, 12, 5.0);
  problem.fill(false);
  EXPECT_EQ(problem.peek(written, 12), 5.0);
  problem.mark_written();
  problem.fill(true);
  EXPECT_EQ(problem.peek(written, 12), closed_form(written, 1));
}

TEST_P(Types, FillsAgainWhatWasPokedOrCopied) {
  Tiny problem(team_, GetParam(), 10);
  problem.fill(true);
  const Array& read = problem.array("read");
  problem.poke(read, 3, 5.0);
  EXPECT_EQ(problem.peek(read, 3), 5.0);
  problem.fill(false);
  EXPECT_EQ(problem.peek(read, 3), closed_form(read, 3));
  const std::vector<std::byte> zeros(10 * 8);
  problem.copy_in("read", zeros.data());
  EXPECT_EQ(problem.peek(read, 3), 0.0);
  problem.fill(false);
  EXPECT_EQ(problem.peek(read, 3), closed_form(read, 3));
}

TEST_P(Types, FillsAnewOnMemoryThatHeldAnother) {
  Arena::release_pool();
  {
    Tiny before(team_, DType::I32, 5000);
    before.fill(true);
  }
  for (const std::int64_t columns : {100, 4000, 5000, 17}) {
    Tiny problem(team_, GetParam(), columns);
    problem.fill(true);
    for (const char* name : {"read", "written"}) {
      const Array& a = problem.array(name);
      for (std::int64_t i = 0; i < a.rows * a.columns; ++i) {
        ASSERT_EQ(problem.peek(a, i), closed_form(a, i % a.columns)) << name << " " << i;
      }
    }
  }
}

TEST_P(Types, CopiesInAndOutWithoutThePadding) {
  Tiny problem(team_, GetParam(), 10);
  const Array& a = problem.array("written");
  EXPECT_GT(a.row_stride, a.columns);
  const auto bytes = static_cast<std::size_t>(a.rows * a.columns * dtype_size(a.type));
  std::vector<unsigned char> in(bytes);
  std::iota(in.begin(), in.end(), static_cast<unsigned char>(1));
  std::vector<unsigned char> out(bytes);
  problem.copy_in("written", in.data());
  problem.copy_out("written", out.data());
  EXPECT_EQ(in, out);
}

TEST_P(Types, PokesWhereItPeeks) {
  Tiny problem(team_, GetParam(), 10);
  const Array& a = problem.array("written");
  for (std::int64_t i = 0; i < a.rows * a.columns; ++i) {
    problem.poke(a, i, static_cast<double>(i * 3));
  }
  for (std::int64_t i = 0; i < a.rows * a.columns; ++i) {
    EXPECT_EQ(problem.peek(a, i), static_cast<double>(i * 3));
  }
}

TEST_P(Types, ChecksPositions) {
  Tiny problem(team_, GetParam(), 10);
  const Array& a = problem.array("written");
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{33}, kMax, -kMax}) {
    EXPECT_TRUE(says(refusal<InputError>([&] { problem.peek(a, bad); }), "of 33 elements"));
    EXPECT_TRUE(says(refusal<InputError>([&] { problem.poke(a, bad, 1.0); }), "array 'written'"));
  }
}

TEST_P(Types, HaveNames) { EXPECT_EQ(parse_dtype(dtype_name(GetParam())), GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Types,
                         ::testing::Values(DType::F32, DType::F64, DType::I32, DType::I64),
                         [](const auto& tried) { return std::string(dtype_name(tried.param)); });

TEST(Problem, CountsWhatItHolds) {
  const Team team({3, "none"});
  EXPECT_EQ(Tiny(team, DType::F64, 10).footprint_B(), (10 + 3 * 11) * 8);
  EXPECT_EQ(Tiny(team, DType::F32, 10).footprint_B(), (10 + 3 * 11) * 4);
}

TEST(Problem, KeepsWorkersOnPagesOfTheirOwn) {
  const Team team({3, "none"});
  Tiny problem(team, DType::F32, 10);
  const Array& a = problem.array("written");
  EXPECT_EQ(a.row_stride * dtype_size(a.type) % 4096, 0);
}

TEST(Problem, NamesAnArrayItLacks) {
  const Team team({1, "none"});
  Tiny problem(team, DType::F64, 10);
  EXPECT_TRUE(says(refusal<InputError>([&] { problem.array("other"); }), "'other'"));
  EXPECT_TRUE(says(refusal<InputError>([&] { problem.copy_in("other", nullptr); }), "'other'"));
}

TEST(Problem, RefusesSizesThatOverflow) {
  const Team team({3, "none"});
  for (const int bits : {60, 61, 62}) {
    const std::string message =
        refusal<InputError>([&] { TooLarge(team, std::int64_t{1} << bits); });
    EXPECT_TRUE(says(message, "an array's size"));
  }
}

class OwnIndices : public ::testing::Test {
 protected:
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  Team team_{{1, "none"}};
  Tiny problem_{team_, DType::F64, 10};
};

TEST_F(OwnIndices, AreCopiesInTheTypeAskedFor) {
  std::vector<std::int64_t> values = {3, 0, 2, INT32_MAX};
  const auto* narrow =
      static_cast<const std::int32_t*>(problem_.own_indices("i", values, DType::I32, kAny));
  const auto* wide =
      static_cast<const std::int64_t*>(problem_.own_indices("i", values, DType::I64, kAny));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(narrow) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wide) % 64, 0U);
  const std::vector<std::int64_t> before = values;
  values.assign(4, -1);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(narrow[i], before[i]);
    EXPECT_EQ(wide[i], before[i]);
  }
}

TEST_F(OwnIndices, AreCheckedAgainstTheirBound) {
  const auto refused = [&](std::vector<std::int64_t> values, DType type, std::int64_t bound) {
    return refusal<InputError>([&] { problem_.own_indices("pattern", values, type, bound); });
  };
  EXPECT_TRUE(says(refused({0, -1}, DType::I64, kAny), "pattern[1] is -1"));
  EXPECT_TRUE(says(refused({4}, DType::I64, 4), "pattern[0] is 4, outside 0 to 3"));
  const std::int64_t large = std::int64_t{INT32_MAX} + 1;
  EXPECT_TRUE(says(refused({large}, DType::I32, kAny), "use int64"));
  EXPECT_NE(problem_.own_indices("pattern", {3}, DType::I64, 4), nullptr);
  EXPECT_NE(problem_.own_indices("pattern", {large}, DType::I64, kAny), nullptr);
}

TEST(Inputs, AreAskedForByName) {
  Inputs inputs;
  const std::vector<std::int64_t> list = {5, 6};
  inputs.integers = {{"count", 7}};
  inputs.indices = {{"pattern", {list.data(), 2}}, {"empty", {list.data(), 0}}};
  EXPECT_EQ(inputs.integer("count", 1), 7);
  EXPECT_EQ(inputs.copy("pattern"), list);
  EXPECT_TRUE(says(refusal<InputError>([&] { inputs.integer("wrap", 1); }), "'wrap' is missing"));
  EXPECT_TRUE(says(refusal<InputError>([&] { inputs.integer("count", 8); }), "at least 8, not 7"));
  EXPECT_TRUE(says(refusal<InputError>([&] { inputs.copy("other"); }), "'other' is missing"));
  EXPECT_TRUE(says(refusal<InputError>([&] { inputs.copy("empty"); }), "must not be empty"));
}

TEST(Families, AreFoundByName) {
  EXPECT_NE(find_family("spatter"), nullptr);
  EXPECT_NE(find_family("launch"), nullptr);
  const std::string message = refusal<InputError>([] { find_family("stream?"); });
  EXPECT_TRUE(says(message, "'stream?'"));
  for (const char* family : {"launch", "spatter"}) EXPECT_TRUE(says(message, family));
}

}  // namespace
}  // namespace memkern
