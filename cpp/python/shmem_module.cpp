// The Python module _memkern_shmem: the memory of OpenSHMEM's processes as a device, for cases to
// run on.
#include <pybind11/pybind11.h>

#include "backends/shmem/library.hpp"
#include "python/ranks.hpp"

PYBIND11_MODULE(_memkern_shmem, m) {
  using memkern::shmem::Library;
  m.doc() = "memkern's kernels for OpenSHMEM's operations; use the memkern package instead.";
  memkern::define_ranks<Library>(m);
  m.def("start", &Library::start, pybind11::arg("threads"),
        "Initialises the library, for one thread or several, unless it is already.");
}
