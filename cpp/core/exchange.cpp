#include "core/exchange.hpp"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/sampler.hpp"
#include "core/topology.hpp"

namespace memkern {
namespace {

constexpr int kRounds = 6;
// Transfers per worker in a round: enough that reading the clock takes a small part of it.
constexpr std::int64_t kTransfers = 4;
constexpr int kMaxSpins = 10000;

struct alignas(128) Line {
  std::atomic<std::int64_t> token{0};
};

// Called by both workers of a pair, `side` 0 and 1; only the former returns the seconds.
double exchange(std::atomic<std::int64_t>& token, std::int64_t side) {
  double shortest_s = std::numeric_limits<double>::infinity();
  double begin_s = 0.0;
  std::int64_t turn = side;
  // The first round synchronises the workers.
  for (int round = 0; round <= kRounds; ++round) {
    for (std::int64_t transfer = 0; transfer < kTransfers; ++transfer, turn += 2) {
      // A worker whose neighbour has no processor finally yields its own.
      for (int spins = 0; token.load(std::memory_order_acquire) != turn; ++spins) {
        if (spins > kMaxSpins) sched_yield();
      }
      if (side == 0 && transfer == 0) {
        const double time_s = now();
        if (round > 1) shortest_s = std::min(shortest_s, time_s - begin_s);
        begin_s = time_s;
      }
      token.store(turn + 1, std::memory_order_release);
    }
  }
  return shortest_s / static_cast<double>(2 * kTransfers);
}

}  // namespace

std::vector<double> exchange_times(const Team& team) {
  const int pairs = team.size() - 1;
  std::vector<double> seconds(static_cast<std::size_t>(pairs));
  std::vector<Line> lines(seconds.size());
#pragma omp parallel num_threads(team.size())
  {
    const int worker = omp_get_thread_num();
    // First pairs whose first worker has an even number, then the others.
    for (const int first : {worker - worker % 2, worker - (worker + 1) % 2}) {
      if (first < 0 || first >= pairs) continue;
      const auto pair = static_cast<std::size_t>(first);
      const double found_s = exchange(lines[pair].token, worker - first);
      if (worker == first) seconds[pair] = found_s;
    }
  }
  return seconds;
}

double measure_exchange(const Team& team) {
  if (team.size() < 2 || team.size() > std::ssize(Topology::instance().allowed_units())) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::ranges::max(exchange_times(team));
}

}  // namespace memkern
