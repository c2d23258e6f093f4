// Clock frequency and throughput that the calling thread gets from its core.
#pragma once

namespace memkern {

// Result of a short measurement on the core of the calling thread.
struct CoreState {
  // Cycles per second, from a chain of dependent instructions of known latency: not the nominal
  // frequency or the frequency of the time-stamp counter. 0 if no such instruction is known.
  double clock_Hz = 0.0;
  // Vector loads with additions, in L1, per clock cycle; per second where the clock is unknown.
  // Another thread on the same physical core reduces this throughput, but does not slow down a
  // chain of dependent instructions.
  double throughput = 0.0;
};

// Takes about 50 microseconds. Each part is the shortest of several repetitions, so that an
// interrupt during one of them has no effect.
CoreState measure_core();

}  // namespace memkern
