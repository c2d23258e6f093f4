// The one timing loop. Parallel regions, chunking, barriers, the clock and repetition live here
// and nowhere else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/body.hpp"
#include "core/team.hpp"

namespace memkern {

class Buffer;

// Seconds on a clock that never runs backwards.
double now();
// The smallest step the clock was seen to make, in seconds.
double clock_tick();

// How invocations follow each other within a sample.
enum class Repetition {
  Fork,     // fork and join each: what a caller of a parallel loop pays
  Barrier,  // one region, the team's barrier between invocations
  Spin,     // the same with a barrier of our own, at which workers spin
  Free      // one region, no barrier: only where no invocation reads what another worker writes
};
Repetition parse_repetition(const std::string& text);

// How the iterations of an invocation are distributed to the workers.
struct Schedule {
  enum class Kind { Static, Dynamic };
  Kind kind = Kind::Static;
  std::int64_t chunk = 0;  // 0: one contiguous range a worker
};
Schedule parse_schedule(const std::string& kind, std::int64_t chunk);

// One body of a sequence, with what it works on.
struct Step {
  Body body = nullptr;
  Finish finish = nullptr;
  const void* args = nullptr;
  std::int64_t count = 0;
  // Where not null: worker w's part begins at boundaries[w] and ends at boundaries[w + 1], in
  // place of equal parts. (Of the static schedule with one range for each worker.)
  const std::int64_t* boundaries = nullptr;
};

// Worker w's part of [0, count), which `workers` contiguous ranges of equal length cover.
Range contiguous_part(std::int64_t count, int workers, int worker);

// The part of a worker where each has one.
Range part_of(const Step& step, int workers, int worker);

// Runs fn(part, worker) on every worker: on its row of `rows` > 1 equal rows of `size`, or on its
// part of one row.
void parallel_parts(const Team& team, std::int64_t rows, std::int64_t size,
                    const std::function<void(Range, int)>& fn);
// The same on parts that begin at boundaries[w] and end at boundaries[w + 1].
void parallel_parts(const Team& team, std::span<const std::int64_t> boundaries,
                    const std::function<void(Range, int)>& fn);

class Sampler {
 public:
  Sampler(const Team& team, Schedule schedule, Repetition repetition);

  // One sample of `invocations` invocations of the sequence: from the common release of all
  // workers to the end of the last. Adds each step's seconds to `per_step` where that is not
  // empty (barrier and fork only). The caller holds a Team::Session.
  double sample(std::span<const Step> steps, std::int64_t invocations,
                std::span<double> per_step = {});

  Repetition repetition() const { return repetition_; }

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
  std::atomic<std::int64_t> next_{0};  // the dynamic schedule's next iteration
};

// Evicts what the caches hold by writing through a buffer larger than all of them, whose contents
// are unknown from then on.
class CacheFlusher {
 public:
  CacheFlusher(const Team& team, Buffer& buffer) : team_(team), buffer_(buffer) {}
  void flush();

 private:
  const Team& team_;
  Buffer& buffer_;
  unsigned char round_ = 0;
};

}  // namespace memkern
