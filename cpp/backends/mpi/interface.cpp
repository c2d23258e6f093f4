#include "backends/mpi/interface.hpp"

#include <memory>

#include "backends/mpi/exchange.hpp"
#include "backends/mpi/library.hpp"
#include "backends/ranks/device.hpp"

namespace memkern::mpi {

ranks::Interface interface() { return ranks::interface_of<Library>(); }

void start(int processes) { Library::start(MPI_Comm_f2c(processes)); }

std::shared_ptr<Exchange> packed_exchange(const Plan& plan) {
  return std::make_shared<PackedExchange>(plan);
}

}  // namespace memkern::mpi
