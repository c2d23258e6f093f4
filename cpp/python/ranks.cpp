#include "python/ranks.hpp"

#include <pybind11/gil.h>
#include <pybind11/stl.h>

#include <cstdint>

#include "backends/ranks/meeting.hpp"
#include "backends/ranks/table.hpp"
#include "python/devices.hpp"
#include "python/errors.hpp"
#include "python/loading.hpp"

namespace memkern {
namespace {

// Synchronises the ranks by functions of Python.
void meet_by(const pybind11::object& barrier, const pybind11::object& largest,
             const pybind11::object& watch) {
  namespace py = pybind11;
  struct Functions {
    py::object barrier;
    py::object largest;
    py::object watch;
  };
  // Never destroyed: the interpreter ends before it.
  static auto* used = new Functions;
  *used = {barrier, largest, watch};
  ranks::meeting().barrier = [] {
    const py::gil_scoped_acquire acquire;
    used->barrier();
  };
  ranks::meeting().largest = [](double value) {
    const py::gil_scoped_acquire acquire;
    return used->largest(value).cast<double>();
  };
  ranks::meeting().watch = [](bool begins) {
    const py::gil_scoped_acquire acquire;
    try {
      used->watch(begins);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("memkern");
    }
  };
}

}  // namespace

void define_ranks(pybind11::module_& m, const ranks::Interface& library) {
  namespace py = pybind11;
  restore_arithmetic();
  translate_errors();
  m.def("finish", library.finish, "To be called by all ranks before their processes end.");
  m.def("version", library.version,
        "Name and version of the library; may be called before start().");
  m.def("rank", library.rank);
  m.def("ranks", library.ranks);
  m.def("nodes", library.nodes, "By rank, the first rank on its node.");
  m.def("threads", library.threads,
        "Whether several threads may call the library at the same time.");
  m.def("private_contexts", library.private_contexts,
        "Whether a thread can have a context that no other thread uses.");
  m.def(
      "meet_by", &meet_by, py::arg("barrier"), py::arg("largest"), py::arg("watch"),
      "Sets how the ranks wait for each other: a function without arguments, one that returns the "
      "largest of the ranks' numbers, and one that begins (True) or ends to watch a call in which "
      "the library waits for all ranks.");
  m.def("entries", [] { return rows_of(ranks::entries()); });
  m.def(
      "device",
      [device = library.device](std::int64_t flush_every, bool private_contexts, int shift) {
        return capsule_of(device({flush_every, private_contexts, shift}));
      },
      py::arg("flush_every"), py::arg("private_contexts"), py::arg("shift"));
}

}  // namespace memkern
