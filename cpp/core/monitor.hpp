// Whether every worker had its processor while samples were taken, and its core to itself.
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/team.hpp"

namespace memkern {

// What is known of a sample besides its time; NaN where the system does not tell.
struct Conditions {
  // Smallest share of the time during which a worker had a processor (1: always).
  double cpu_share;
  // Smallest throughput of a worker's core beside the sample (see CoreState), and the median clock
  // of the cores.
  double throughput;
  double clock_Hz;
};

// Watches the workers of a team during a series of samples. Waiting for a processor is counted by
// the system for each thread; what a hypervisor or interrupts take shows as time that passed
// without being used. Looks at the workers and measurements of their cores are as far apart as it
// takes to make them a small share of the time; the samples in between share what was found.
class Monitor {
 public:
  // The caller holds a Team::Session, and goes on holding it while the monitor lives. Samples taken
  // while the cores do less than `least_throughput` are of no use; 0: all are.
  explicit Monitor(const Team& team, double least_throughput = 0.0);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Begins a series: everything before it does not count.
  void start();
  // Waits for the cores where they did too little at last, but not for long and not beyond `end_s`:
  // neighbours come and go within milliseconds.
  void await_cores(double end_s);
  // A sample has ended. Its conditions are written at the latest by finish().
  void sampled(Conditions& conditions);
  void finish();

 private:
  struct Worker {
    pid_t thread = 0;
    clockid_t clock = 0;
    int file = -1;  // the system's account of the thread's waiting
    double wall_s = 0.0;
    double cpu_s = 0.0;
    double delay_s = 0.0;
    long switches = 0;
  };

  void look(bool count);
  void measure_cores(bool count);
  static bool read(Worker& worker);

  const Team& team_;
  double least_throughput_;
  std::vector<Worker> workers_;
  std::vector<Conditions*> since_look_;
  std::vector<Conditions*> since_cores_;
  double looked_s_ = 0.0;
  double measured_s_ = 0.0;
  double throughput_ = 0.0;
  double clock_Hz_ = 0.0;
  double core_cost_s_ = 0.0;
  // Samples between two measurements of the cores take so many times as long as one of these.
  double stretch_ = 0.0;
};

}  // namespace memkern
