// Every compiled streaming body against its definition, run serially on arrays that end at an
// inaccessible page and begin at odd places.
#include "kernels/streaming.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using testing::Fenced;

constexpr double kAlpha = 3.0;
constexpr double kBeta = -2.0;
constexpr int kWorkers = 2;

// What an operation makes of the elements at one position; a reduction returns its term.
using Definition = std::function<double(double* x)>;

const std::map<std::string, Definition>& definitions() {
  const Definition copy = [](double* x) { return x[0] = x[1]; };
  const Definition triad = [](double* x) { return x[0] = x[1] + kAlpha * x[2]; };
  const Definition dot = [](const double* x) { return x[0] * x[1]; };
  static const std::map<std::string, Definition> all = {
      {"stream.copy", copy},
      {"stream.scale", [](double* x) { return x[0] = kAlpha * x[1]; }},
      {"stream.add", [](double* x) { return x[0] = x[1] + x[2]; }},
      {"stream.triad", triad},
      {"bs.bs1", copy},
      {"bs.bs2", [](double* x) { return x[0] = kAlpha * x[1] + kBeta * x[0]; }},
      {"bs.bs3", [](const double* x) { return x[0] * x[0]; }},
      {"bs.bs4", dot},
      {"bs.bs5",
       [](double* x) {
         x[0] += kAlpha * x[2];
         x[1] -= kAlpha * x[3];
         return x[1] * x[1];
       }},
      {"loops.load", [](const double* x) { return x[0]; }},
      {"loops.sum", [](const double* x) { return x[0]; }},
      {"loops.dot", dot},
      {"loops.init", [](double* x) { return x[0] = kAlpha; }},
      {"loops.copy", copy},
      {"loops.update", [](double* x) { return x[0] *= kAlpha; }},
      {"loops.daxpy", [](double* x) { return x[0] += kAlpha * x[1]; }},
      {"loops.triad", triad},
      {"loops.nstream", [](double* x) { return x[0] += x[1] + kAlpha * x[2]; }},
      {"loops.schoenauer", [](double* x) { return x[0] = x[1] + x[2] * x[3]; }},
  };
  return all;
}

std::vector<RegisteredEntry> streaming_entries() {
  const std::vector<std::string> isas = supported_isas();
  std::vector<RegisteredEntry> all;
  for (const RegisteredEntry& e : registered_entries()) {
    const bool runs = std::find(isas.begin(), isas.end(), e.isa) != isas.end();
    if (runs && e.arrays > 0) all.push_back(e);
  }
  return all;
}

template <class T>
void compare(const RegisteredEntry& entry, std::int64_t n, std::int64_t cut, std::int64_t end) {
  const Definition& definition = definitions().at(entry.kernel);
  const auto streams = static_cast<std::size_t>(entry.arrays);
  // Small whole numbers: every order of adding gives the same sum, in either precision.
  std::vector<std::vector<T>> values(streams, std::vector<T>(static_cast<std::size_t>(n)));
  for (std::size_t k = 0; k < streams; ++k) {
    for (std::size_t i = 0; i < values[k].size(); ++i) {
      values[k][i] = static_cast<T>((i * 7 + k * 3) % 5);
    }
  }
  std::deque<Fenced<T>> arrays;  // which can't be moved
  for (const auto& stream : values) arrays.emplace_back(stream);

  std::vector<double> partial(kWorkers * StreamingArgs::kPartialStride);
  double result = -1.0;
  StreamingArgs args;
  for (std::size_t k = 0; k < streams; ++k) args.stream[k] = arrays[k].data();
  args.alpha = kAlpha;
  args.beta = kBeta;
  args.partial = partial.data();
  args.result = &result;
  entry.body(&args, {0, cut}, 0);
  entry.body(&args, {cut, end}, 1);
  if (entry.finish != nullptr) entry.finish(&args, kWorkers);

  double wanted = 0.0;
  const bool largest = std::string(entry.kernel) == "loops.load";
  for (std::size_t i = 0; i < static_cast<std::size_t>(end); ++i) {
    double x[StreamingArgs::kMost] = {};
    for (std::size_t k = 0; k < streams; ++k) x[k] = static_cast<double>(values[k][i]);
    const double term = definition(x);
    wanted = largest ? std::max(wanted, term) : wanted + term;
    for (std::size_t k = 0; k < streams; ++k) values[k][i] = static_cast<T>(x[k]);
  }
  const std::string what = std::string(entry.kernel) + " " + entry.variant + " " + entry.isa + " " +
                           entry.dtype + ", " + std::to_string(cut) + " and " +
                           std::to_string(end) + " of " + std::to_string(n);
  for (std::size_t k = 0; k < streams; ++k) EXPECT_EQ(arrays[k].values(), values[k]) << what;
  if (entry.finish != nullptr) {
    EXPECT_EQ(result, wanted) << what;
    for (const double rest : partial) ASSERT_EQ(rest, 0.0) << what;
  }
}

TEST(Streaming, EveryBodyFollowsItsDefinition) {
  const std::vector<RegisteredEntry> entries = streaming_entries();
  ASSERT_FALSE(entries.empty());
  for (const RegisteredEntry& entry : entries) {
    for (const std::int64_t n : {1, 2, 5, 8, 15, 16, 17, 33, 64, 67, 129, 263, 20'011}) {
      const auto each = std::string(entry.dtype) == "float64" ? compare<double> : compare<float>;
      each(entry, n, n, n);
      each(entry, n, n / 3, n);
      each(entry, n, n / 2, n - 1);
    }
  }
}

TEST(Streaming, EveryDefinitionIsBuilt) {
  for (const auto& [kernel, definition] : definitions()) {
    for (const std::string& isa : supported_isas()) {
      for (const char* dtype : {"float64", "float32"}) {
        EXPECT_NE(find_entry(kernel, "scalar", isa, dtype, ""), nullptr) << kernel << " " << isa;
        EXPECT_NE(find_entry(kernel, "auto", isa, dtype, ""), nullptr) << kernel << " " << isa;
      }
    }
  }
}

}  // namespace
}  // namespace memkern
