// The Python module _memkern_mpi: the memory of MPI's processes as a device, for cases to run on.
#include <pybind11/pybind11.h>

#include "backends/mpi/library.hpp"
#include "python/ranks.hpp"

PYBIND11_MODULE(_memkern_mpi, m) {
  using memkern::mpi::Library;
  m.doc() = "memkern's kernels for MPI's one-sided operations; use the memkern package instead.";
  memkern::define_ranks<Library>(m);
  m.def(
      "start", [](int processes) { Library::start(MPI_Comm_f2c(processes)); },
      pybind11::arg("processes"),
      "Uses the processes of a communicator, given by Fortran's handle.");
}
