// The clock of a core, and how much of the core its worker has.
#pragma once

namespace memkern {

// What a short measurement of the core on which the calling thread runs has found.
struct CoreState {
  // Cycles per second by a chain of dependent instructions of known latency: never the nominal
  // frequency or the time-stamp counter's. 0 on processors for which no such instruction is known.
  double clock_Hz = 0.0;
  // Vector loads with additions, in L1, per clock cycle; per second where the clock is unknown.
  // They are limited by throughput: another thread on the same physical core takes its share of
  // them, while it leaves a chain of dependent instructions as it is.
  double throughput = 0.0;
};

// Takes about 50 microseconds. Each part is the shortest of several, so that an interrupt in one of
// them does not count.
CoreState measure_core();

}  // namespace memkern
