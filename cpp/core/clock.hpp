// The clock at which the workers' cores run.
#pragma once

#include "core/team.hpp"

namespace memkern {

// Cycles per second, the median of the workers', all of them busy at once with a chain of
// dependent instructions of known latency. Never the nominal frequency or the time-stamp
// counter's. 0 on processors for which no such instruction is known. The caller holds a
// Team::Session.
double core_clock_Hz(const Team& team);

}  // namespace memkern
