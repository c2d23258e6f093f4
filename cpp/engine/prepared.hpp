// A case that is ready to run: its memory is placed and filled, and its variants are known. Callers
// prepare or measure one case at a time, because all cases share workers, pool and caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/counters.hpp"
#include "core/monitor.hpp"
#include "core/team.hpp"
#include "engine/problem.hpp"
#include "engine/request.hpp"
#include "engine/runner.hpp"

namespace memkern {

class Prepared {
 public:
  explicit Prepared(const Request& request);
  ~Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  Problem& problem() const { return *problem_; }
  const Runner& runner() const { return *runner_; }
  // Throws InputError if there is no such candidate.
  void select(const std::string& variant, const std::string& isa);
  // Seconds of one sample of `invocations` invocations.
  double run(std::int64_t invocations);
  // Seconds of the iterations [begin, end), run once.
  double run_range(std::int64_t begin, std::int64_t end);
  // Invocations so far that warmed up the caches for samples, and their time.
  std::int64_t untimed() const { return untimed_; }
  double untimed_s() const { return untimed_s_; }
  // Throws InputError if the range is empty or not within the iterations.
  void check_range(Range range) const;

  // A series of samples. The workers are bound during its lifetime.
  class Sampling {
   public:
    // If it `warms_up`, the first sample follows invocations that are not timed (see
    // Runner::warm_up), but not beyond `end` on the clock of now(). With `events`, they are counted
    // during each sample; not on a device. Without `probes`, the workers are not monitored, without
    // `cores` their cores are not.
    Sampling(Prepared& prepared, std::int64_t invocations, double end,
             std::vector<EventCode> events = {}, bool probes = true, bool warms_up = true,
             bool cores = true);
    // Sets the seconds per invocation and, unless `per_step` is empty, of each kernel of an
    // invocation. `conditions` are NaN on a device and without probes; otherwise they are written
    // by finish() at the latest, and must live until then. `start`, if given, is called immediately
    // before the sample is timed; if it returns false, there is no sample, and the result is false.
    // Sets the first of `counts`, one for each event, and `moved_B`, if given, to the bytes per
    // invocation that Problem::moved_B() counts. With `part`, the sample is one run of these
    // iterations, without times of steps, counts and bytes.
    bool sample(double& seconds, std::span<double> per_step, Conditions& conditions,
                const std::function<bool()>& start = {}, std::span<Count> counts = {},
                std::optional<Range> part = {}, double* moved_B = nullptr);
    void finish();
    // End of sampling: untimed invocations take at most the remaining time, and postpone it by
    // their duration.
    double end() const { return end_; }

   private:
    void warm_up();

    Prepared& prepared_;
    std::int64_t invocations_;
    double end_;
    bool warms_up_;
    std::unique_ptr<Runner::Watch> watch_;
    bool first_ = true;
    Monitor* monitor_ = nullptr;          // null on a device and without probes
    std::unique_ptr<Counters> counters_;  // after the watch, which binds the workers
  };

 private:
  Team team_;
  std::string kernel_;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<Runner> runner_;
  std::int64_t untimed_ = 0;
  double untimed_s_ = 0.0;
  double sampled_s_ = -std::numeric_limits<double>::infinity();  // when the last sample ended
};

}  // namespace memkern
