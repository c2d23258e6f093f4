// Conditions under which samples are taken: CPU time of the workers and state of their cores.
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/team.hpp"

namespace memkern {

// Conditions of one sample; NaN where they are unknown.
struct Conditions {
  // Smallest share of time, over the workers, during which a worker had a processor (1: always).
  double cpu_share;
  // Smallest throughput of a worker's core before and after the sample (see CoreState), and median
  // clock of the cores.
  double throughput;
  double clock_Hz;
  // Longest time before and after the sample in which a line went from one worker to the next (see
  // measure_exchange).
  double exchange_s;
};

// Monitors the workers of a team during a series of samples. The system counts the time that each
// thread waits for a processor; time lost to a hypervisor or to interrupts is wall-clock time
// without CPU time. The workers' counters are read, and their cores measured, at intervals that
// keep the cost small; all samples of an interval share the result.
class Monitor {
 public:
  // The caller holds a Team::Session during the lifetime of the monitor. Below `least_throughput`,
  // cores count as shared with other threads.
  explicit Monitor(const Team& team, double least_throughput = 0.0);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Begins a series; what happened before does not count.
  void start();
  // If the last measured throughput was too low, waits until it is not, for at most 10 ms and not
  // beyond `end_s` on the clock of now(): threads on the same core often run for milliseconds only.
  void wait_for_cores(double end_s);
  // To be called after each sample. Its conditions are written by finish() at the latest.
  void sample_ended(Conditions& conditions);
  void finish();

 private:
  struct Worker {
    pid_t thread = 0;
    clockid_t clock = 0;
    int file = -1;  // schedstat of the thread
    double wall_s = 0.0;
    double cpu_s = 0.0;
    double delay_s = 0.0;
    long switches = 0;
  };

  void read_workers(bool count);
  void measure_cores(bool count);
  static bool read(Worker& worker);

  const Team& team_;
  double least_throughput_;
  std::vector<Worker> workers_;
  // Samples since the counters were read, and since the cores were measured.
  std::vector<Conditions*> since_read_;
  std::vector<Conditions*> since_cores_;
  double read_s_ = 0.0;
  double measured_s_ = 0.0;
  double throughput_ = 0.0;
  double clock_Hz_ = 0.0;
  double exchange_s_ = 0.0;
  double core_cost_s_ = 0.0;
  // Time between two measurements of the cores, in units of core_cost_s_.
  double interval_ = 0.0;
};

}  // namespace memkern
