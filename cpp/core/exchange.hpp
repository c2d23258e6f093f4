// How long a line takes from one worker of a team to the next.
#pragma once

#include <vector>

#include "core/team.hpp"

namespace memkern {

// Seconds in which a line goes from each worker to the next one: the shortest of a few rounds in
// which both write it in turn. Pairs without a common worker exchange at the same time. The caller
// holds a Team::Session.
std::vector<double> exchange_times(const Team& team);

// The longest of exchange_times: in one of many neighbours another core, socket or node begins. NaN
// for a single worker, or where workers share processing units.
double measure_exchange(const Team& team);

}  // namespace memkern
