// How long a line takes from one worker of a team to the next.
#pragma once

#include "core/team.hpp"

namespace memkern {

// Seconds in which a line that all workers write in turn goes from one to the next: the shortest of
// a few rounds, NaN for a single worker, or where workers share processing units. The caller holds
// a Team::Session.
double measure_exchange(const Team& team);

}  // namespace memkern
