// What the modules of one-sided libraries have in common.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>

#include "backends/ranks/device.hpp"
#include "python/devices.hpp"
#include "python/errors.hpp"

namespace memkern {

// Defines all functions of the module of library L but `start`, which has to be called first.
template <class L>
void define_ranks(pybind11::module_& m) {
  namespace py = pybind11;
  translate_errors();
  m.def("finish", &L::finish, "To be called by all ranks before their processes end.");
  m.def("version", &L::version, "Name and version of the library; may be called before start().");
  m.def("rank", &L::rank);
  m.def("ranks", &L::ranks);
  m.def("ranks_on_node", &L::ranks_on_node);
  m.def("threads", &L::threads, "Whether several threads may call the library at the same time.");
  m.def("private_contexts", &L::private_contexts,
        "Whether a thread can have a context that no other thread uses.");
  m.def("entries", [] { return rows_of(ranks::table<L>()); });
  m.def(
      "device",
      [](std::int64_t flush_every, bool private_contexts, int shift) {
        return capsule_of(ranks::device<L>({flush_every, private_contexts, shift}));
      },
      py::arg("flush_every"), py::arg("private_contexts"), py::arg("shift"));
}

}  // namespace memkern
