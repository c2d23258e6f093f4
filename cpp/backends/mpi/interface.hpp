// What the Python module of MPI needs, without the types of an MPI.
#pragma once

#include <memory>

#include "backends/mpi/plan.hpp"
#include "backends/ranks/interface.hpp"
#include "engine/exchange.hpp"

namespace memkern::mpi {

ranks::Interface interface();
// Uses the processes of a communicator, given by Fortran's handle.
void start(int processes);
// See PackedExchange.
std::shared_ptr<Exchange> packed_exchange(const Plan& plan);

}  // namespace memkern::mpi
