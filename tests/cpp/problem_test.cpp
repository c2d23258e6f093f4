// The functions of Problem that all families use.
#include "engine/problem.hpp"

#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

class Tiny : public Declared {
 public:
  Tiny(const Team& team, DType type, std::int64_t columns) : Declared(team, "read:r written:w") {
    add_array("read", type, columns, false);
    add_array("written", type, columns + 1, true);
    commit();
  }
};

double closed_form(const Array& a, std::int64_t column) {
  const std::uint64_t product = static_cast<std::uint64_t>(column) * 2654435761U + a.salt;
  return static_cast<double>((product % (std::uint64_t{1} << 32)) >> 9);
}

// Expects that an array is filled by position.
void expect_filled(const Problem& problem, const Array& a) {
  for (std::int64_t i = 0; i < a.rows * a.columns; ++i) {
    ASSERT_EQ(problem.peek(a, i), closed_form(a, i % a.columns)) << a.name << " " << i;
  }
}

// The elements of an input and the zeros after it.
template <class T>
std::vector<T> with_tail(const std::byte* data, std::int64_t size, std::int64_t tail = 0) {
  const auto* values = reinterpret_cast<const T*>(data);
  return {values, values + size + tail};
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
  for (const Array* a : {&read, &written}) expect_filled(problem, *a);
  EXPECT_EQ(problem.footprint_B(), (1001 + 3 * 1002) * dtype_size(GetParam()));
}

TEST_P(Types, FillsResultsOnlyOnRequest) {
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

TEST_P(Types, FillsReusedMemoryAgain) {
  Arena::release_pool();
  {
    Tiny before(team_, DType::I32, 5000);
    before.fill(true);
  }
  for (const std::int64_t columns : {100, 4000, 5000, 17}) {
    Tiny problem(team_, GetParam(), columns);
    problem.fill(true);
    for (const char* name : {"read", "written"}) expect_filled(problem, problem.array(name));
  }
}

TEST_P(Types, CopiesInAndOutWithoutThePadding) {
  Tiny problem(team_, GetParam(), 10);
  const Array& a = problem.array("written");
  EXPECT_GT(a.row_stride, a.columns);
  // Workers have separate pages.
  EXPECT_EQ(a.row_stride * dtype_size(a.type) % 4096, 0);
  std::vector<unsigned char> out(at(a.rows * a.columns * dtype_size(a.type)));
  const auto in = ascending<unsigned char>(std::ssize(out), 1);
  problem.copy_in("written", in.data());
  problem.copy_out(a, out.data());
  EXPECT_EQ(in, out);
}

TEST_P(Types, ChecksPositions) {
  Tiny problem(team_, GetParam(), 10);
  const Array& a = problem.array("written");
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{33}, kMax, -kMax}) {
    EXPECT_TRUE(is_refused([&] { problem.peek(a, bad); }, "of 33 elements"));
    EXPECT_TRUE(is_refused([&] { problem.poke(a, bad, 1.0); }, "array 'written'"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Types,
                         ::testing::Values(DType::F32, DType::F64, DType::I32, DType::I64,
                                           DType::U32, DType::U64),
                         [](const auto& tried) { return std::string(dtype_name(tried.param)); });

TEST(Problem, NamesAMissingArray) {
  Tiny problem(team_of(1), DType::F64, 10);
  EXPECT_TRUE(is_refused([&] { problem.array("other"); }, "'other'"));
  EXPECT_TRUE(is_refused([&] { problem.copy_in("other", nullptr); }, "'other'"));
}

TEST(Problem, RefusesSizesThatOverflow) {
  const auto refused = [](const auto& add) { EXPECT_TRUE(is_refused(add, "an array's size")); };
  for (const int bits : {60, 61, 62}) {
    Declared problem(team_of(3), "huge:r");
    refused([&] { problem.add_array("huge", DType::F64, std::int64_t{1} << bits, true); });
  }
  for (const std::int64_t size : {kMax, kMax / 8}) {
    Declared problem(team_of(3));
    refused([&] { problem.add_data("huge", {nullptr, size, DType::F64}, {}, 64); });
  }
  Declared shifted(team_of(3), "huge:r", 1 << 20);
  refused([&] { shifted.add_array("huge", DType::I64, kMax / 8, false); });
}

class OwnIndices : public ::testing::Test {
 protected:
  Team team_{{1, "none"}};
  Tiny problem_{team_, DType::F64, 10};
};

TEST_F(OwnIndices, AreCopiesInTheGivenType) {
  std::vector<std::int64_t> values = {3, 0, 2, INT32_MAX};
  const auto* narrow =
      static_cast<const std::int32_t*>(problem_.own_indices("i", values, DType::I32, kMax));
  const auto* wide =
      static_cast<const std::int64_t*>(problem_.own_indices("i", values, DType::I64, kMax));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(narrow) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wide) % 64, 0U);
  const std::vector<std::int64_t> before = values;
  values.assign(4, -1);
  EXPECT_EQ(std::vector<std::int64_t>(narrow, narrow + 4), before);
  EXPECT_EQ(std::vector<std::int64_t>(wide, wide + 4), before);
}

TEST_F(OwnIndices, AreCheckedAgainstTheirBound) {
  const auto refused = [&](std::vector<std::int64_t> values, DType type, std::int64_t bound) {
    return refusal<InputError>([&] { problem_.own_indices("pattern", values, type, bound); });
  };
  EXPECT_TRUE(contains(refused({0, -1}, DType::I64, kMax), "pattern[1] is -1"));
  EXPECT_TRUE(contains(refused({4}, DType::I64, 4), "pattern[0] is 4, outside 0 to 3"));
  const std::int64_t large = std::int64_t{INT32_MAX} + 1;
  EXPECT_TRUE(contains(refused({large}, DType::I32, kMax), "use int64"));
  EXPECT_NE(problem_.own_indices("pattern", {3}, DType::I64, 4), nullptr);
  EXPECT_NE(problem_.own_indices("pattern", {large}, DType::I64, kMax), nullptr);
}

class AddedIndices : public ::testing::Test {
 protected:
  // The message that refuses these indices.
  static std::string refused(const Team& team, const std::vector<std::int64_t>& values, DType type,
                             std::int64_t low, std::int64_t bound) {
    return refusal<InputError>([&] {
      Declared problem(team);
      problem.add_indices("ids", view_of(values), type, low, bound);
      problem.commit();
    });
  }
  const Team one_{{1, "none"}};
  const Team three_{{3, "none"}};
};

TEST_F(AddedIndices, AreCopiesInTheGivenType) {
  for (const std::int64_t n : {1, 2, 1001}) {
    Integers values = ascending(n, -1);
    const std::vector<std::int64_t> before = values;
    Declared problem(three_, "between:r");
    problem.add_indices("narrow", view_of(values), DType::I32, -1, n - 1);
    problem.add_array("between", DType::F32, 5, false);
    problem.add_indices("wide", view_of(values), DType::I64, -1, n - 1);
    problem.commit();
    values.assign(values.size(), -2);
    EXPECT_EQ(as<std::int64_t>(with_tail<std::int32_t>(problem.indices("narrow"), n)), before);
    EXPECT_EQ(with_tail<std::int64_t>(problem.indices("wide"), n), before);
    EXPECT_EQ(problem.footprint_B(), n * 4 + 5 * 4 + n * 8);
    EXPECT_TRUE(is_refused([&] { problem.indices("between"); }, "'between'"));
    EXPECT_TRUE(is_refused([&] { problem.array("wide"); }, "'wide'"));
  }
}

TEST_F(AddedIndices, MustLieBetweenTheirBounds) {
  for (const DType type : {DType::I32, DType::I64}) {
    for (const Team* team : {&one_, &three_}) {
      const auto message = [&](std::vector<std::int64_t> values) {
        return refused(*team, values, type, -1, 7);
      };
      EXPECT_EQ(message({-1, 6, 7, 0}), "ids[2] is 7, outside -1 to 6");
      EXPECT_EQ(message({-2, 6, 6, 0}), "ids[0] is -2, outside -1 to 6");
      EXPECT_EQ(message({-1, 6, 6, kMax}),
                "ids[3] is " + std::to_string(kMax) + ", outside -1 to 6");
      EXPECT_EQ(message({-kMax - 1}),
                "ids[0] is " + std::to_string(-kMax - 1) + ", outside -1 to 6");
      // It would be in bounds if it were truncated to 32 bits.
      EXPECT_EQ(message({0, std::int64_t{1} << 32}), "ids[1] is 4294967296, outside -1 to 6");
    }
  }
}

TEST_F(AddedIndices, AreRefusedByTheFirstThatIsWrong) {
  for (const Team* team : {&one_, &three_, &team_of(5)}) {
    for (const std::vector<std::size_t>& wrong :
         {std::vector<std::size_t>{999}, {0, 999}, {334, 998}, {999, 333, 500}, {700, 200, 201}}) {
      std::vector<std::int64_t> values(1000, 3);
      for (const std::size_t i : wrong) values[i] = 1000 + static_cast<std::int64_t>(i);
      const std::string first = std::to_string(*std::min_element(wrong.begin(), wrong.end()));
      for (const DType type : {DType::I32, DType::I64}) {
        EXPECT_TRUE(contains(refused(*team, values, type, 0, 4), "ids[" + first + "] is 1"));
      }
    }
  }
}

TEST_F(AddedIndices, MustFitTheirType) {
  const std::int64_t most = std::int64_t{INT32_MAX} + 1;
  EXPECT_EQ(refused(one_, {0}, DType::I32, 0, most + 1),
            "ids reaches up to 2147483648, too far for int32 indices: use int64");
  EXPECT_EQ(refused(one_, {most - 1, most}, DType::I32, 0, most),
            "ids[1] is 2147483648, outside 0 to 2147483647");
  Declared problem(one_);
  const std::vector<std::int64_t> values = {most - 1, 0};
  const std::vector<std::int64_t> wide = {most, kMax - 1};
  problem.add_indices("narrow", view_of(values), DType::I32, 0, most);
  problem.add_indices("wide", view_of(wide), DType::I64, 0, kMax);
  problem.commit();
  EXPECT_EQ(with_tail<std::int32_t>(problem.indices("narrow"), 1).front(), INT32_MAX);
  EXPECT_EQ(with_tail<std::int64_t>(problem.indices("wide"), 2).back(), kMax - 1);
}

TEST_F(AddedIndices, MarkTheirMemoryAsNotFilled) {
  Arena::release_pool();
  const std::vector<std::int64_t> zeros(1000, 0);
  const std::byte* memory = nullptr;
  for (int round = 0; round < 2; ++round) {
    {
      Declared problem(three_, "read:r");
      problem.add_array("read", DType::I64, 1000, false);
      problem.commit();
      problem.fill(true);
      expect_filled(problem, problem.array("read"));
      memory = problem.array("read").data;
    }
    Declared problem(three_);
    problem.add_indices("ids", view_of(zeros), DType::I64, 0, 1);
    problem.commit();
    ASSERT_EQ(problem.indices("ids"), memory);
  }
}

TEST_F(AddedIndices, MayBeInt32) {
  const std::vector<std::int32_t> values = {-1, 5, 6, 0};
  const IndexView narrow{values.data(), 4, true};
  for (const DType type : {DType::I32, DType::I64}) {
    Declared problem(three_);
    problem.add_indices("ids", narrow, type, -1, 7);
    problem.commit();
    if (type == DType::I32) {
      EXPECT_EQ(with_tail<std::int32_t>(problem.indices("ids"), 4), values);
    } else {
      EXPECT_EQ(with_tail<std::int64_t>(problem.indices("ids"), 4), as<std::int64_t>(values));
    }
    Declared wrong(three_);
    wrong.add_indices("ids", narrow, type, -1, 6);
    EXPECT_EQ(refusal<InputError>([&] { wrong.commit(); }), "ids[2] is 6, outside -1 to 5");
  }
}

TEST(Starts, MustAscendFromZeroToTheLast) {
  for (const DType type : {DType::I32, DType::I64}) {
    const auto check = [&](const std::vector<std::int64_t>& values, std::int64_t last) {
      Declared problem(team_of(2));
      problem.add_indices("starts", view_of(values), type, 0, 100);
      problem.commit();
      problem.check_starts("starts", last);
    };
    EXPECT_NO_THROW(check({0}, 0));
    EXPECT_NO_THROW(check({0, 0, 0}, 0));
    EXPECT_NO_THROW(check({0, 2, 2, 9}, 9));
    const auto refused = [&](const std::vector<std::int64_t>& values) {
      return refusal<InputError>([&] { check(values, 9); });
    };
    EXPECT_EQ(refused({1, 2, 9}), "starts must go from 0 to 9");
    EXPECT_EQ(refused({0, 2, 8}), "starts must go from 0 to 9");
    EXPECT_EQ(refused({0, 2, 10}), "starts must go from 0 to 9");
    EXPECT_EQ(refused({0, 5, 4, 9}), "starts[2] is smaller than the previous one");
  }
}

class AddedData : public ::testing::Test {
 protected:
  // Fills memory, which later arrays reuse, with other values.
  static void leave_garbage(const Team& team) {
    Arena::release_pool();
    Arena arena(team, Placement{});
    for (int i = 0; i < 4; ++i) arena.request(1 << 16, 1);
    arena.commit();
    for (std::size_t i = 0; i < 4; ++i) {
      std::fill_n(arena[i].data(), arena[i].capacity(), std::byte{0xAA});
    }
  }
  const Team three_{{3, "none"}};
  const std::vector<Boundaries> boundaries_ = {
      {}, {0, 10, 10, 1001}, {0, 0, 1001, 1001}, {0, 400, 900, 1001}};
};

TEST_F(AddedData, IsCopiedAndFollowedByZeros) {
  const std::vector<double> values = ascending<double>(1001, 1);
  std::vector<std::int64_t> ids(values.begin(), values.end());
  for (const Boundaries& boundaries : boundaries_) {
    for (const std::int64_t tail : {0, 1, 64}) {
      leave_garbage(three_);
      std::vector<double> source = values;
      Declared problem(three_);
      problem.add_data("values", {source.data(), 1001, DType::F64}, boundaries, tail);
      problem.add_indices("narrow", view_of(ids), DType::I32, 0, 2000, boundaries, tail);
      problem.add_indices("wide", view_of(ids), DType::I64, 0, 2000, boundaries, tail);
      problem.commit();
      source.assign(source.size(), -1.0);
      const std::vector<double> wanted = as<double>(values, tail);
      EXPECT_EQ(with_tail<double>(problem.data("values"), 1001, tail), wanted);
      EXPECT_EQ(with_tail<std::int32_t>(problem.indices("narrow"), 1001, tail),
                as<std::int32_t>(wanted));
      EXPECT_EQ(with_tail<std::int64_t>(problem.indices("wide"), 1001, tail),
                as<std::int64_t>(wanted));
      // The zeros are not part of the input.
      EXPECT_EQ(problem.footprint_B(), 1001 * (8 + 4 + 8));
    }
  }
}

TEST_F(AddedData, MayBeFilledByTheFamily) {
  for (const Boundaries& boundaries : boundaries_) {
    leave_garbage(three_);
    Declared problem(three_);
    problem.add_data("values", {nullptr, 1001, DType::F32}, boundaries, 64);
    problem.add_indices("ids", {nullptr, 1001}, DType::I64, 0, 5, boundaries, 64);
    problem.commit();
    EXPECT_EQ(with_tail<float>(problem.data("values") + 1001 * 4, 0, 64), std::vector<float>(64));
    EXPECT_EQ(with_tail<std::int64_t>(problem.indices("ids") + 1001 * 8, 0, 64),
              std::vector<std::int64_t>(64));
    auto* values = reinterpret_cast<float*>(problem.data("values"));
    for (int i = 0; i < 1001; ++i) values[i] = static_cast<float>(i);
    std::vector<float> out(1001);
    problem.copy_out(problem.any_array("values"), out.data());
    EXPECT_EQ(out, std::vector<float>(values, values + 1001));
  }
}

TEST_F(AddedData, CanBeCopiedOutAndDigested) {
  const std::vector<float> values = {1.5F, -2.0F, 0.0F, 7.0F};
  const std::vector<std::int64_t> ids = {3, 1, 2};
  Declared problem(three_, "read:r");
  problem.add_array("read", DType::F64, 5, false);
  problem.add_data("values", {values.data(), 4, DType::F32}, {}, 64);
  problem.add_indices("ids", view_of(ids), DType::I32, 0, 4, {}, 64);
  problem.commit();
  std::vector<float> out(4);
  problem.copy_out(problem.any_array("values"), out.data());
  EXPECT_EQ(out, values);
  std::vector<std::int32_t> out_ids(3);
  problem.copy_out(problem.any_array("ids"), out_ids.data());
  EXPECT_EQ(out_ids, (std::vector<std::int32_t>{3, 1, 2}));
  EXPECT_EQ(problem.any_array("read").name, "read");
  EXPECT_EQ(problem.any_array("values").columns, 4);
  std::uint64_t sum = 0;
  std::uint64_t either = 0;
  for (const float value : values) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, 4);
    sum += word;
    either ^= word;
  }
  EXPECT_EQ(problem.digest("values"), std::pair(sum, either));
  EXPECT_EQ(problem.digest("ids"), (std::pair<std::uint64_t, std::uint64_t>{6, 3 ^ 1 ^ 2}));
  // Inputs are not among the arrays that are filled, and vice versa.
  EXPECT_EQ(problem.arrays().size(), 1U);
  EXPECT_TRUE(is_refused([&] { problem.array("values"); }, "'values'"));
  EXPECT_TRUE(is_refused([&] { problem.any_array("other"); }, "'other'"));
  EXPECT_TRUE(is_refused([&] { problem.data("ids"); }, "no data 'ids'"));
  problem.fill(true);
  problem.copy_out(problem.any_array("values"), out.data());
  EXPECT_EQ(out, values);
}

TEST_F(AddedData, HasTheRequestedOffset) {
  const std::vector<double> values = {1, 2, 3};
  for (const std::int64_t offset_B : {8, 136, 4096, 5000}) {
    for (const Boundaries& boundaries : {Boundaries{}, Boundaries{0, 1, 1, 3}}) {
      Declared problem(three_, "y:w", offset_B);
      problem.add_array("y", DType::F64, 3, false, boundaries);
      problem.add_data("values", {values.data(), 3, DType::F64}, boundaries, 8);
      problem.commit();
      const auto place = reinterpret_cast<std::uintptr_t>(problem.data("values"));
      EXPECT_EQ(static_cast<std::int64_t>(place % 4096), 2 * offset_B % 4096);
      EXPECT_EQ(with_tail<double>(problem.data("values"), 3, 8),
                (std::vector<double>{1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0}));
      problem.fill(true);
      expect_filled(problem, problem.array("y"));
    }
  }
}

TEST(Problem, AddsTheArraysThatItsKernelDeclares) {
  Declared problem(team_of(1), "a:r b:w c:u[rows, 2]");
  for (const char* name : {"a", "b", "c"}) problem.add_array(name, DType::F64, 3, false);
  EXPECT_EQ(refusal<InputError>([&] { problem.add_array("d", DType::F64, 3, false); }),
            "the declaration of kernel 'declared' lacks its array 'd'");
  problem.commit();
  for (const auto& [name, written] :
       {std::pair{"a", false}, std::pair{"b", true}, std::pair{"c", true}}) {
    EXPECT_EQ(problem.array(name).written, written) << name;
  }
  Declared fewer(team_of(1), "a:r b:w");
  fewer.add_array("a", DType::F64, 3, false);
  EXPECT_EQ(refusal<InputError>([&] { fewer.commit(); }), "kernel 'declared' has no array 'b'");
}

TEST(Declarations, NameTheArraysWithRolesAndShapes) {
  const auto parsed = [](const char* text) {
    std::string all;
    for (const DeclaredArray& a : arrays_of({"", text, 0, ""})) {
      all += a.name + "/" + a.role + "/" + a.shape + ";";
    }
    return all;
  };
  EXPECT_EQ(parsed(""), "");
  EXPECT_EQ(parsed("a:w"), "a/w/elements;");
  EXPECT_EQ(parsed("A:r[rows * columns] y:u  result:w[1]"),
            "A/r/rows * columns;y/u/elements;result/w/1;");
}

TEST(Declarations, CoverEveryEntry) {
  for (const RegisteredEntry& e : registered_entries()) {
    EXPECT_NO_THROW(declaration_of(e.kernel)) << e.kernel;
  }
  EXPECT_EQ(refusal<InputError>([] { declaration_of("stream.dance"); }),
            "there is no kernel 'stream.dance'");
}

class Offsets : public ::testing::TestWithParam<std::int64_t> {
 protected:
  Team team_{{3, "none"}};
};

TEST_P(Offsets, ShiftArraysOneByOne) {
  const std::vector<std::int64_t> values = {0, 1, 2};
  Declared problem(team_, "first:r second:w fourth:w", GetParam());
  problem.add_array("first", DType::F64, 1001, false);
  problem.add_array("second", DType::F32, 77, true);
  problem.add_indices("third", view_of(values), DType::I32, 0, 3);
  problem.add_array("fourth", DType::I64, 5, false);
  problem.commit();
  const auto past_page = [](const std::byte* data) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % 4096);
  };
  EXPECT_EQ(past_page(problem.array("first").data), 1 * GetParam() % 4096);
  EXPECT_EQ(past_page(problem.array("second").data), 2 * GetParam() % 4096);
  EXPECT_EQ(past_page(problem.indices("third")), 3 * GetParam() % 4096);
  EXPECT_EQ(past_page(problem.array("fourth").data), 4 * GetParam() % 4096);
  problem.fill(true);
  for (const Array& a : problem.arrays()) expect_filled(problem, a);
  EXPECT_EQ(with_tail<std::int32_t>(problem.indices("third"), 3), as<std::int32_t>(values));
  EXPECT_EQ(problem.footprint_B(), 1001 * 8 + 3 * 77 * 4 + 3 * 4 + 5 * 8);
}

// Memory that was filled at another offset is filled again when it is reused.
TEST_P(Offsets, CauseAFillOfReusedMemory) {
  Arena::release_pool();
  for (const std::int64_t offset_B : {std::int64_t{0}, GetParam(), std::int64_t{16}, GetParam()}) {
    Declared problem(team_, "read:r", offset_B);
    problem.add_array("read", DType::F64, 100, false);
    problem.commit();
    problem.fill(true);
    expect_filled(problem, problem.array("read"));
  }
}

TEST_P(Offsets, GiveWorkersSeparatePages) {
  Declared problem(team_, "rows:w", GetParam());
  problem.add_array("rows", DType::F64, 4096 / 8, true);
  problem.commit();
  const Array& a = problem.array("rows");
  const auto page = [&](std::int64_t i) {
    return reinterpret_cast<std::uintptr_t>(a.data + i * 8) / 4096;
  };
  EXPECT_NE(page(a.columns - 1), page(a.row_stride));
}

INSTANTIATE_TEST_SUITE_P(All, Offsets, ::testing::Values(0, 8, 64, 136, 4096, 5000, 1 << 20));

TEST(Offset, MustBeASmallMultipleOf8Bytes) {
  for (const std::int64_t bad : {std::int64_t{-8}, std::int64_t{4}, std::int64_t{12},
                                 (std::int64_t{1} << 20) + 8, kMax, kMax - 7}) {
    EXPECT_EQ(refusal<InputError>([&] { Declared(team_of(1), "", bad); }),
              "offset must be a multiple of 8 bytes from 0 to 1048576, not " + std::to_string(bad));
  }
}

TEST(Inputs, AreFoundByName) {
  Inputs inputs;
  const std::vector<std::int64_t> list = {5, 6};
  inputs.integers = {{"count", 7}};
  inputs.indices = {{"pattern", {list.data(), 2}}, {"empty", {list.data(), 0}}};
  EXPECT_EQ(inputs.integer("count"), 7);
  EXPECT_EQ(inputs.option("count"), 7);
  EXPECT_EQ(inputs.option("prefetch"), 0);
  EXPECT_TRUE(is_refused([&] { inputs.option("count", 6); }, "count must be at most 6, not 7"));
  EXPECT_EQ(inputs.copy("pattern"), list);
  EXPECT_TRUE(is_refused([&] { inputs.integer("wrap"); }, "'wrap' is missing"));
  EXPECT_NO_THROW(inputs.check({"count", 7, 7}));
  EXPECT_TRUE(is_refused([&] { inputs.check({"wrap"}); }, "'wrap' is missing"));
  EXPECT_TRUE(is_refused([&] { inputs.check({"count", 8}); }, "count must be at least 8, not 7"));
  EXPECT_TRUE(is_refused([&] { inputs.check({"count", 0, 6}); }, "count must be at most 6, not 7"));
  EXPECT_TRUE(is_refused([&] { inputs.copy("other"); }, "'other' is missing"));
  EXPECT_TRUE(is_refused([&] { inputs.copy("empty"); }, "must not be empty"));
  const std::vector<std::int32_t> narrow = {INT32_MIN, -1, INT32_MAX};
  inputs.indices["narrow"] = {narrow.data(), 3, true};
  EXPECT_EQ(inputs.copy("narrow"), as<std::int64_t>(narrow));
}

TEST(Families, AreFoundByName) {
  const auto prepare = [](const char* kernel) {
    return make_problem(kernel, "float64", "", {}, team_of(1), {});
  };
  EXPECT_NE(prepare("launch.empty"), nullptr);
  EXPECT_TRUE(is_refused([&] { prepare("launch.nothing"); }, "no kernel 'launch.nothing'"));
  const std::string message = refusal<InputError>([&] { prepare("stream?.copy"); });
  EXPECT_TRUE(contains(message, "'stream?'"));
  for (const char* family : {"launch", "spatter"}) EXPECT_TRUE(contains(message, family));
}

}  // namespace
}  // namespace memkern
