// A case with everything resolved: memory placed and filled, variants found. One case is prepared
// or measured at a time, since workers, pool and caches are the machine's: callers see to that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

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
  // Throws InputError where there is no such candidate.
  void select(const std::string& variant, const std::string& isa);
  // Seconds of so many invocations, as one sample.
  double run(std::int64_t invocations);
  // Seconds of the iterations [begin, end), run once.
  double run_range(std::int64_t begin, std::int64_t end);

  // Samples, one after the other, between binding the workers and letting them go.
  class Sampling {
   public:
    // Where the cores do less than `least_throughput`, a sample waits for a moment, but not beyond
    // `end` on the monotonic clock.
    Sampling(Prepared& prepared, std::int64_t invocations, double least_throughput, double end);
    // Sets seconds per invocation, of all and of each kernel that an invocation runs in turn where
    // `per_step` is not empty, and what the sample was taken under: NaN on a device, and known only
    // after finish(), until which `conditions` has to live.
    void take(double& seconds, std::span<double> per_step, Conditions& conditions);
    void finish();

   private:
    Prepared& prepared_;
    std::int64_t invocations_;
    double end_;
    std::unique_ptr<Runner::Watch> watch_;
  };

 private:
  Team team_;
  std::string kernel_;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace memkern
