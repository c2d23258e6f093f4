// Functions that are given at run time: their arguments, sums and modes.
#include <cfenv>

#include "families/own/function.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// With the type by which functions are called, which the sanitizer compares.
void scaled(void* to, void* from, void* indices, std::int64_t begin, std::int64_t end,
            std::int64_t shift, double s) {
  auto* a = static_cast<double*>(to);
  const auto* b = static_cast<const double*>(from);
  const auto* idx = static_cast<const std::int32_t*>(indices);
  for (std::int64_t i = begin; i < end; ++i) a[i] = s * b[idx[i]] + static_cast<double>(shift);
}

void summed(void* sum, void* b, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    *static_cast<float*>(sum) += static_cast<const float*>(b)[i] / 1024;
  }
}

void rounds_up(void* a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) static_cast<double*>(a)[i] = 1;
  std::fesetround(FE_UPWARD);
}

template <class F>
std::uintptr_t address(F* f) {
  return reinterpret_cast<std::uintptr_t>(f);
}

Request request_of(const std::string& kernel, std::int64_t n, const std::string& dtype) {
  Request request;
  request.kernel = kernel;
  request.dtype = dtype;
  request.threads = 2;
  request.inputs.integers = {{"elements", n}, {"length of a", n}, {"length of b", n}};
  return request;
}

TEST(Own, GetsArraysRangesAndParametersInTheirOrder) {
  constexpr std::int64_t kN = 1000;
  add_function({"own.scaled",
                address(scaled),
                "float64",
                {{"a", 'w', "float64"}, {"b", 'r', "float64"}, {"idx", 'i', "int32"}},
                {"shift"},
                {"s"}});
  Request request = request_of("own.scaled", kN, "float64");
  request.index_dtype = "int32";
  std::vector<std::int64_t> indices(kN);
  for (std::int64_t i = 0; i < kN; ++i) indices[static_cast<std::size_t>(i)] = kN - 1 - i;
  request.inputs.integers["length of idx"] = request.inputs.integers["bound of idx"] = kN;
  request.inputs.integers["shift"] = 7;
  request.inputs.numbers = {{"s", 0.5}};
  request.inputs.indices["idx"] = {indices.data(), kN};
  Prepared prepared(request);
  prepared.problem().fill(true);
  prepared.run(1);
  for (const std::int64_t i : {std::int64_t{0}, kN / 2, kN - 1}) {
    EXPECT_EQ(element(prepared, "a", i), 0.5 * element(prepared, "b", kN - 1 - i) + 7);
  }
  EXPECT_EQ(prepared.problem().facts().at("changed_modes"), 0);
  indices[3] = kN;
  EXPECT_THROW(Prepared{request}, InputError);
}

TEST(Own, AddsTheSumsOfAllWorkersInEachInvocation) {
  constexpr std::int64_t kN = 64;
  add_function({"own.summed",
                address(summed),
                "float32",
                {{"sum", 's', "float32"}, {"b", 'r', "float32"}},
                {},
                {}});
  Prepared prepared(request_of("own.summed", kN, "float32"));
  prepared.problem().fill(true);
  float wanted = 0;
  for (std::int64_t i = 0; i < kN; ++i)
    wanted += static_cast<float>(element(prepared, "b", i)) / 1024;
  for (int k = 0; k < 2; ++k) {
    prepared.run(1);
    EXPECT_NEAR(element(prepared, "sum", 0), wanted, 1e-5 * wanted);
  }
}

TEST(Own, RestoresModesOfArithmetic) {
  add_function({"own.rounds_up", address(rounds_up), "float64", {{"a", 'w', "float64"}}, {}, {}});
  Prepared prepared(request_of("own.rounds_up", 10, "float64"));
  prepared.run(1);
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_EQ(prepared.problem().facts().at("changed_modes"), 1);
#endif
}

TEST(Own, RefusesTooManyArguments) {
  Function function{"own.many", address(rounds_up), "float64", {}, {}, {}};
  EXPECT_THROW(add_function(function), InputError);
  function.arrays.assign(Function::kMostArrays + 1, {"a", 'r', "float64"});
  EXPECT_THROW(add_function(function), InputError);
  function.arrays.assign(1, {"a", 'r', "float16"});
  EXPECT_THROW(add_function(function), InputError);
}

}  // namespace
}  // namespace memkern
