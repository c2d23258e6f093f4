// Who runs a prepared case: the process's own workers, or a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/monitor.hpp"
#include "core/team.hpp"
#include "engine/problem.hpp"
#include "engine/request.hpp"

namespace memkern {

// What was obtained of what was requested.
struct Obtained {
  std::string variant;
  std::string isa;
  int threads = 0;
  int block_threads = 0;  // 0 on the processor
  std::string pin;
  int vector_B = 0;  // 0 on a device, and where that is for the processor to say
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual std::vector<std::pair<std::string, std::string>> candidates() const = 0;
  // False where there is no such candidate.
  virtual bool select(const std::string& variant, const std::string& isa) = 0;
  virtual std::size_t steps() const = 0;
  // Seconds of a sample; each step's are added to `per_step` where that is not empty.
  virtual double sample(std::int64_t invocations, std::span<double> per_step) = 0;
  virtual double run_range(Range range) = 0;
  virtual void flush() = 0;
  // Binds the workers and watches them while it lives; null where there is nothing to watch.
  struct Watch {
    Watch(const Team& team, double least_throughput)
        : session(team), monitor(team, least_throughput) {
      monitor.start();
    }
    Team::Session session;
    Monitor monitor;
  };
  virtual std::unique_ptr<Watch> watch(double least_throughput) = 0;
  virtual Obtained obtained() const = 0;
};

// A runner on the device that is requested, else on the team. Throws InputError where the case
// can't be run as requested.
std::unique_ptr<Runner> make_runner(const Team& team, const Problem& problem,
                                    const Request& request);

}  // namespace memkern
