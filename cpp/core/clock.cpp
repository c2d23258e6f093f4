#include "core/clock.hpp"

#include <algorithm>
#include <cstdint>

#include "core/body.hpp"
#include "core/sampler.hpp"

namespace memkern {
namespace {

// A 64-bit integer multiplication takes three cycles on x86 processors since 2008; additions are
// unsuitable there, as recent processors eliminate them. On Arm an addition takes one cycle.
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

constexpr int kTries = 4;
constexpr int kLinks = 16;
constexpr int kChainRounds = 150;  // of 48 cycles on x86-64: about 2.5 microseconds

double chain_s() {
  std::uint64_t x = 1;
  const double start = now();
  for (int i = 0; i < kChainRounds; ++i) {
    asm volatile(MEMKERN_FOUR_LINKS MEMKERN_FOUR_LINKS MEMKERN_FOUR_LINKS MEMKERN_FOUR_LINKS
                 : "+r"(x));
  }
  return now() - start;
}

// 4 KiB: a small part of L1, so that the data of a sample stays there.
constexpr int kVectors = 256;
constexpr int kAccumulators = 8;
constexpr int kLoadRounds = 80;  // about 10 microseconds

double loads_s() {
  using Vector __attribute__((vector_size(16))) = std::uint64_t;
  alignas(64) static const Vector values[kVectors] = {};
  Vector sums[kAccumulators] = {};
  const double start = now();
  for (int round = 0; round < kLoadRounds; ++round) {
    const Vector* from = values;
    asm volatile("" : "+r"(from)::"memory");
    for (int i = 0; i < kVectors; i += kAccumulators) {
      for (int k = 0; k < kAccumulators; ++k) sums[k] += from[i + k];
    }
  }
  // Taking the address of an accumulator would keep it in memory instead of a register.
  Vector total = sums[0];
  for (int k = 1; k < kAccumulators; ++k) total += sums[k];
  do_not_optimize(&total);
  return now() - start;
}

}  // namespace

CoreState measure_core() {
  // The two parts alternate, so that a disturbance affects both.
  double shortest_chain_s = chain_s();
  double shortest_loads_s = loads_s();
  for (int i = 1; i < kTries; ++i) {
    shortest_chain_s = std::min(shortest_chain_s, chain_s());
    shortest_loads_s = std::min(shortest_loads_s, loads_s());
  }
  const double clock_Hz = kLatency * kLinks * kChainRounds / shortest_chain_s;
  const double per_second = double{kVectors} * kLoadRounds / shortest_loads_s;
  return {clock_Hz, clock_Hz > 0.0 ? per_second / clock_Hz : per_second};
}

}  // namespace memkern
