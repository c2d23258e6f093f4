// Runs a prepared case, on the workers of this process or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/counters.hpp"
#include "core/monitor.hpp"
#include "core/team.hpp"
#include "engine/problem.hpp"
#include "engine/request.hpp"

namespace memkern {

// Obtained options of a case.
struct Obtained {
  std::string variant;
  std::string isa;
  int threads = 0;
  int block_threads = 0;  // 0 on the processor
  std::string pin;
  std::string pin_refused;        // why pin auto was refused; empty if it was not
  std::vector<int> shared_units;  // also reserved by another memkern process
  int vector_B = 0;               // 0 on a device, or if it depends on the processor
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual std::vector<std::pair<std::string, std::string>> candidates() const = 0;
  // False if there is no such candidate.
  virtual bool select(const std::string& variant, const std::string& isa) = 0;
  virtual std::size_t steps() const = 0;
  // Seconds of a sample. Adds each step's seconds to `per_step` unless that is empty. `counters`
  // are those of the workers, null without any and on a device.
  virtual double sample(std::int64_t invocations, std::span<double> per_step,
                        Counters* counters) = 0;
  virtual double run_range(Range range) = 0;
  virtual void flush() = 0;
  // Runs untimed invocations until cores and caches are in a steady state, for at most `most_s`,
  // and returns their number. The last samples ended `idle_s` ago. There are none on a device, if
  // the caches are flushed or hold none of the data, or if ranks exchange values in an invocation.
  virtual std::int64_t warm_up(double /*idle_s*/, double /*most_s*/) { return 0; }
  // Binds the workers during its lifetime, and monitors them if `probes`, with their `cores`.
  struct Watch {
    Watch(const Team& team, bool probes, bool cores) : session(team) {
      if (probes) monitor.emplace(team, "", cores).start();
    }
    Team::Session session;
    std::optional<Monitor> monitor;
  };
  // Null on a device.
  virtual std::unique_ptr<Watch> watch(bool probes, bool cores) = 0;
  virtual Obtained obtained() const = 0;
};

// A runner on the requested device if there is one, else on the team. Throws InputError if the case
// cannot be run as requested.
std::unique_ptr<Runner> make_runner(const Team& team, const Problem& problem,
                                    const Request& request);

}  // namespace memkern
