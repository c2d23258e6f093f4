// Traces of programs for Python.
#include "core/trace.hpp"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "python/trace.hpp"

namespace py = pybind11;

namespace memkern {
namespace {

py::dict described(const Site& s) {
  py::dict deltas;
  for (std::size_t k = 0; k < Site::kDeltas; ++k) {
    if (s.deltas[k] > 0) deltas[py::int_(s.delta[k])] = s.deltas[k];
  }
  py::list dependencies;
  for (const Dependency& d : s.dependencies) {
    dependencies.append(py::dict(py::arg("on") = d.on, py::arg("scale") = d.scale,
                                 py::arg("hits") = d.hits, py::arg("tries") = d.tries,
                                 py::arg("all_hits") = d.all_hits,
                                 py::arg("all_tries") = d.all_tries));
  }
  return py::dict(py::arg("caller") = s.caller, py::arg("how") = s.how, py::arg("size") = s.size,
                  py::arg("count") = s.count, py::arg("bytes") = s.bytes, py::arg("low") = s.low,
                  py::arg("high") = s.high, py::arg("begin") = s.begin, py::arg("end") = s.end,
                  py::arg("deltas") = deltas, py::arg("dependencies") = dependencies,
                  py::arg("threads") = s.threads);
}

template <class T>
py::array_t<T> array(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

}  // namespace

void define_trace(py::module_& m) {
  py::class_<Trace>(m, "Trace")
      .def(py::init<const std::string&>(), py::arg("path"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("head", &Trace::head)
      .def_property_readonly("text", &Trace::text)
      .def_property_readonly("threads", &Trace::threads)
      .def_property_readonly("left_out", &Trace::left_out)
      .def("sites",
           [](const Trace& trace) {
             py::list found;
             for (const Site& s : trace.sites()) found.append(described(s));
             return found;
           })
      .def("atomics",
           [](const Trace& trace) {
             const AtomicLines found = trace.atomics();
             return py::make_tuple(found.accesses, found.lines, found.shared);
           })
      .def(
          "sequences",
          [](const Trace& trace, int thread,
             const std::vector<std::pair<std::uint32_t, std::uint32_t>>& sites, std::int64_t most) {
            std::vector<Trace::Sequence> found;
            for (const auto& [site, other] : sites) found.push_back({site, other, {}, {}, {}});
            {
              const py::gil_scoped_release released;
              trace.follow(thread, found, most);
            }
            py::list all;
            for (const Trace::Sequence& s : found) {
              all.append(py::make_tuple(array(s.at), array(s.from), array(s.value)));
            }
            return all;
          },
          py::arg("thread"), py::arg("sites"), py::arg("most"));
}

}  // namespace memkern
