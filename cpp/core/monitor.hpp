// Conditions under which samples are taken: CPU time of the workers and state of their cores.
#pragma once

#include <sys/types.h>

#include <limits>
#include <string>
#include <vector>

#include "core/team.hpp"

namespace memkern {

// Conditions of one sample; NaN where they are unknown.
struct Conditions {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  // Smallest share of time, over the workers, during which a worker had a processor (1: always).
  double cpu_share = kUnknown;
  // Smallest throughput of a worker's core before and after the sample (see CoreState), and median
  // clock of the cores.
  double throughput = kUnknown;
  double clock_Hz = kUnknown;
  // The longer and the shorter time for passing a line from one worker to the next (see
  // measure_exchange), before and after the sample.
  double exchange_s = kUnknown;
  double exchange_least_s = kUnknown;
  // 1 if a worker that is not bound to a processing unit moved to another one, else 0.
  double moved = kUnknown;
  // Largest shares of time, over the workers, during which one waited for a processor, and during
  // which a processor that it had was taken away (by a hypervisor, or by interrupts). The former is
  // unknown without run-queue delays, the latter for workers that slept.
  double waited_share = kUnknown;
  double absent_share = kUnknown;
  // Longest latency of memory before and after the sample (see measure_memory).
  double memory_s = kUnknown;
};

// Whether the system reports the time that each thread waits for a processor. Otherwise time
// without CPU time is the only indication. `root` is prepended to /proc, for tests.
bool run_queue_delays_known(const std::string& root = "");

// Monitors the workers of a team during a series of samples. The system counts the time that each
// thread waits for a processor; time lost to a hypervisor or to interrupts is wall-clock time
// without CPU time. The workers' counters are read, and their cores measured, at intervals that
// keep the cost small; all samples of an interval share the result.
class Monitor {
 public:
  // The caller holds a Team::Session during the lifetime of the monitor. `root` is as for
  // run_queue_delays_known. Without `cores`, which takes most of the time, only workers are read.
  explicit Monitor(const Team& team, const std::string& root = "", bool cores = true);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Begins a series; earlier events do not count.
  void start();
  // Events since the last sample do not count. To be called before the first one.
  void skip() { read_workers(); }
  // To be called after each sample. Its conditions are written by finish() at the latest.
  void sample_ended(Conditions& conditions);
  void finish();

 private:
  struct Worker {
    pid_t thread = 0;
    clockid_t clock = 0;
    int file = -1;  // schedstat of the thread; -1 if it can't be read
    int unit = -1;  // processing unit on which it ran
    double wall_s = 0.0;
    double cpu_s = 0.0;
    double delay_s = 0.0;
    long switches = 0;
    // Without schedstat: numbers of voluntary and involuntary context switches.
    long waits = 0;
    long preemptions = 0;
  };

  // Shares of the time between two readings of a worker; NaN where they are unknown.
  struct Shares {
    double with_processor;
    double waited;
    double absent;
  };
  static Shares shares(const Worker& before, const Worker& after);

  // Sets the conditions of all samples since the last call.
  void read_workers();
  void measure_cores(bool count);
  static void read(Worker& worker);

  const Team& team_;
  std::vector<Worker> workers_;
  std::vector<Worker> before_;
  // Whether workers must read values themselves: their unit and their own waits.
  bool asks_workers_;
  bool measures_cores_;
  // Samples since the counters were read, and since the cores were measured.
  std::vector<Conditions*> since_read_;
  std::vector<Conditions*> since_cores_;
  double read_s_ = 0.0;
  double measured_s_ = 0.0;
  double throughput_ = Conditions::kUnknown;
  double clock_Hz_ = Conditions::kUnknown;
  double exchange_s_ = Conditions::kUnknown;
  double memory_s_ = Conditions::kUnknown;
  double core_cost_s_ = 0.0;
};

}  // namespace memkern
