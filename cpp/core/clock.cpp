#include "core/clock.hpp"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/sampler.hpp"

namespace memkern {
namespace {

// Multiplying 64-bit integers takes three cycles on the x86 processors since 2008; additions do
// not serve there, since recent ones fold them away. On Arm an addition takes one cycle.
#if defined(__x86_64__)
constexpr double kLatency = 3.0;
#define MEMKERN_CHAIN_LINK "imul %0, %0\n\t"
#elif defined(__aarch64__)
constexpr double kLatency = 1.0;
#define MEMKERN_CHAIN_LINK "add %0, %0, %0\n\t"
#else
constexpr double kLatency = 0.0;
#define MEMKERN_CHAIN_LINK ""
#endif
#define MEMKERN_FOUR_LINKS \
  MEMKERN_CHAIN_LINK MEMKERN_CHAIN_LINK MEMKERN_CHAIN_LINK MEMKERN_CHAIN_LINK

constexpr int kLinks = 16;
constexpr int kRounds = 1000;  // ten microseconds, well above the clock's step
constexpr int kTries = 3;      // the shortest was not interrupted

double chain_s() {
  std::uint64_t x = 1;
  const double start = now();
  for (int i = 0; i < kRounds; ++i) {
    asm volatile(MEMKERN_FOUR_LINKS MEMKERN_FOUR_LINKS MEMKERN_FOUR_LINKS MEMKERN_FOUR_LINKS
                 : "+r"(x));
  }
  return now() - start;
}

}  // namespace

double core_clock_Hz(const Team& team) {
  std::vector<double> seconds(static_cast<std::size_t>(team.size()));
#pragma omp parallel num_threads(team.size())
  {
    double shortest = chain_s();
    for (int i = 1; i < kTries; ++i) shortest = std::min(shortest, chain_s());
    seconds[static_cast<std::size_t>(omp_get_thread_num())] = shortest;
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return kLatency * kLinks * kRounds / *middle;
}

}  // namespace memkern
