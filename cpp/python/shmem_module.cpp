// The Python module _memkern_shmem: the memory of OpenSHMEM's processes as a device, for cases to
// run on.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "backends/shmem/interface.hpp"
#include "backends/shmem/meetings.hpp"
#include "python/ranks.hpp"

PYBIND11_MODULE(_memkern_shmem, m) {
  namespace py = pybind11;
  using memkern::shmem::Meetings;
  m.doc() = "memkern's kernels for OpenSHMEM's operations; use the memkern package instead.";
  memkern::define_ranks(m, memkern::shmem::interface());
  m.def("start", &memkern::shmem::start, py::arg("threads"),
        py::call_guard<py::gil_scoped_release>(),
        "Initialises the library, for one thread or several, unless it is already.");
  m.def("abort", &memkern::shmem::abort, "Ends all processes.");
  py::class_<Meetings>(m, "Meetings", "Meetings of all processes, which make this object together.")
      .def(py::init<>(), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("most_B", &Meetings::most_B,
                             "Most bytes that a process can bring to a meeting.")
      .def(
          "bring", [](Meetings& self, const py::bytes& content) { self.bring(content); },
          py::arg("content"), "Puts what this process brings to the next meeting.")
      .def("begin", &Meetings::begin, "Begins the next meeting.")
      .def("complete", &Meetings::complete, "Whether all processes have begun this meeting.")
      .def("missing", &Meetings::missing, "The processes that have not.")
      .def(
          "contents",
          [](const Meetings& self) {
            const std::vector<std::string> all = self.contents();
            return std::vector<py::bytes>(all.begin(), all.end());
          },
          "What each process has brought to this meeting, which is complete.");
}
