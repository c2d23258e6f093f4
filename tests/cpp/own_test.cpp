// Functions that are given at run time: their sums and modes.
#include <cfenv>

#include "families/own/function.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// With the type by which functions are called, which the sanitizer compares.
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
