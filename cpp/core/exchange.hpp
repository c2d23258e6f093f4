// Time for passing a cache line from one worker of a team to the next.
#pragma once

#include <vector>

#include "core/team.hpp"

namespace memkern {

// Seconds for passing a line from each worker to the next: the shortest of a few rounds in which
// both write it alternately. Pairs without a common worker exchange at the same time. The caller
// holds a Team::Session.
std::vector<double> exchange_times(const Team& team);

// The longest of exchange_times, since one of many neighbours is on another core, socket or node.
// NaN for a single worker, or where workers share processing units.
double measure_exchange(const Team& team);

}  // namespace memkern
