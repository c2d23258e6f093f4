#include "core/exchange.hpp"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "core/sampler.hpp"
#include "core/topology.hpp"

namespace memkern {
namespace {

constexpr int kRounds = 6;
// Transfers in a round, so that reading the clock takes a small part of it.
constexpr std::int64_t kTransfers = 8;
constexpr int kMaxSpins = 10000;

}  // namespace

double measure_exchange(const Team& team) {
  const std::int64_t workers = team.size();
  if (workers < 2 || workers > std::ssize(Topology::instance().allowed_units())) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const std::int64_t laps = std::max<std::int64_t>(1, kTransfers / workers);
  alignas(128) std::atomic<std::int64_t> token{0};
  double shortest_s = std::numeric_limits<double>::infinity();
#pragma omp parallel num_threads(team.size())
  {
    const std::int64_t worker = omp_get_thread_num();
    std::int64_t turn = worker;
    double begin_s = 0.0;
    // In the first round the workers arrive.
    for (int round = 0; round <= kRounds; ++round) {
      for (std::int64_t lap = 0; lap < laps; ++lap, turn += workers) {
        // A worker whose neighbour has no processor yields its own in the end.
        for (int spins = 0; token.load(std::memory_order_acquire) != turn; ++spins) {
          if (spins > kMaxSpins) sched_yield();
        }
        if (worker == 0 && lap == 0) {
          const double time_s = now();
          if (round > 1) shortest_s = std::min(shortest_s, time_s - begin_s);
          begin_s = time_s;
        }
        token.store(turn + 1, std::memory_order_release);
      }
    }
  }
  return shortest_s / static_cast<double>(laps * workers);
}

}  // namespace memkern
