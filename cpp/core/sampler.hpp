// The only timing loop: parallel regions, chunks, barriers, repetition and the clock are here.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "core/body.hpp"
#include "core/team.hpp"

namespace memkern {

class Counters;

// Seconds of a monotonic clock.
double now();
// Smallest observed step of that clock, in seconds.
double clock_tick();

// Succession of invocations within a sample.
enum class Repetition {
  Fork,     // one parallel region each: the time includes fork and join
  Barrier,  // one region, OpenMP's barrier between invocations
  Spin,     // one region, a barrier at which workers spin between invocations
  Free      // one region, no barrier: only if no worker reads data of another one
};
Repetition parse_repetition(const std::string& text);

// Distribution of the iterations of an invocation to the workers.
struct Schedule {
  enum class Kind { Static, Dynamic };
  Kind kind = Kind::Static;
  std::int64_t chunk = 0;  // iterations; 0: one contiguous range per worker
};
Schedule parse_schedule(const std::string& kind, std::int64_t chunk);

// One body of a sequence and its arguments.
struct Step {
  Body body = nullptr;
  Finish finish = nullptr;
  const void* args = nullptr;
  std::int64_t count = 0;
  // If not null, worker w's part is [boundaries[w], boundaries[w + 1]) instead of an equal one.
  // Only for the static schedule with one range per worker.
  const std::int64_t* boundaries = nullptr;
};

// The worker's part of a step if each worker has one range.
Range part_of(const Step& step, int workers, int worker);

class Sampler {
 public:
  Sampler(const Team& team, Schedule schedule, Repetition repetition);

  // Seconds of one sample of `invocations` invocations of the sequence, from the release of all
  // workers to the end of the last one. Adds each step's seconds to `per_step` unless that is empty
  // (not for Free). Each worker reads its counters, if any, right before and after that time. The
  // caller holds a Team::Session.
  double sample(std::span<const Step> steps, std::int64_t invocations,
                std::span<double> per_step = {}, Counters* counters = nullptr);

 private:
  void work(const Step& step, int worker, int workers);
  double sample_fork(std::span<const Step> steps, std::int64_t invocations,
                     std::span<double> per_step);
  template <class Wait>
  double sample_barrier(std::span<const Step> steps, std::int64_t invocations,
                        std::span<double> per_step, const Wait& wait);
  double sample_free(const Step& step, std::int64_t invocations);

  const Team& team_;
  Schedule schedule_;
  Repetition repetition_;
  Counters* counters_ = nullptr;       // of the present sample
  std::atomic<std::int64_t> next_{0};  // the dynamic schedule's next iteration
};

}  // namespace memkern
