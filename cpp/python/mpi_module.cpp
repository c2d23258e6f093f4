// The Python module _memkern_mpi: the memory of MPI's processes as a device, for cases to run on.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "backends/mpi/interface.hpp"
#include "python/exchange.hpp"
#include "python/ranks.hpp"

namespace {

using Positions = pybind11::array_t<std::int64_t, pybind11::array::c_style>;

std::vector<std::int64_t> copy_of(const Positions& positions) {
  return {positions.data(), positions.data() + positions.size()};
}

pybind11::capsule make_exchange(const std::vector<std::tuple<int, Positions, std::int64_t>>& all,
                                const Positions& to, const Positions& of, bool adds,
                                double timeout_s) {
  memkern::mpi::Plan plan{{}, copy_of(to), copy_of(of), adds, timeout_s};
  for (const auto& [rank, sent, received] : all) {
    plan.neighbours.push_back({rank, copy_of(sent), received});
  }
  const auto made = [&] {
    const pybind11::gil_scoped_release others_run;
    return memkern::mpi::packed_exchange(plan);
  };
  return memkern::capsule_of(made());
}

void define(pybind11::module_& m) {
  m.doc() = "memkern's kernels for MPI's one-sided operations; use the memkern package instead.";
  memkern::define_ranks(m, memkern::mpi::interface());
  m.def("start", &memkern::mpi::start, pybind11::arg("processes"),
        pybind11::call_guard<pybind11::gil_scoped_release>(),
        "Uses the processes of a communicator, given by Fortran's handle.");
  m.def("exchange", &make_exchange, pybind11::arg("neighbours"), pybind11::arg("to"),
        pybind11::arg("of"), pybind11::arg("adds"), pybind11::arg("timeout_s"),
        "An exchange among all ranks, which call this together. Neighbours: rank, positions of the "
        "elements that are sent to it, number of those that are received from it.");
}

}  // namespace

// The modules for the MPIs of several vendors, of which each links this object.
PYBIND11_MODULE(_memkern_mpi, m) { define(m); }
PYBIND11_MODULE(_memkern_mpi_mpich, m) { define(m); }
PYBIND11_MODULE(_memkern_mpi_openmpi, m) { define(m); }
