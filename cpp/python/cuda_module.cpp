// The Python module _memkern_cuda: the CUDA devices of this machine, for cases to run on. Importing
// it needs no driver.
#include <pybind11/pybind11.h>

#include "backends/cuda/device.hpp"
#include "gpu/registry.hpp"
#include "python/devices.hpp"
#include "python/errors.hpp"
#include "python/loading.hpp"

namespace py = pybind11;

namespace memkern::cuda {

PYBIND11_MODULE(_memkern_cuda, m) {
  m.doc() = "memkern's kernels for CUDA devices; use the memkern package instead.";

  restore_arithmetic();
  translate_errors();

  m.attr("architectures") = MEMKERN_CUDA_ARCHITECTURES;
  m.def("device_count", &device_count);
  m.def("describe", [](int number) {
    const Description d = describe(number);
    py::dict all;
    all["name"] = d.name;
    all["isa"] = d.isa;
    all["bus"] = d.bus;
    all["memory_B"] = d.memory_B;
    all["l2_B"] = d.l2_B;
    all["peak_GBps"] = d.peak_Bps / 1e9;
    all["ecc"] = d.ecc;
    all["units"] = d.units;
    all["max_threads"] = d.max_threads;
    all["driver"] = d.driver;
    all["runtime"] = d.runtime;
    return all;
  });
  m.def("reaches", &reaches, py::arg("number"), py::arg("peer"));
  m.def("copy_s", &copy_s, py::arg("number"), py::arg("bytes"), py::arg("times"), py::arg("warm_s"),
        py::call_guard<py::gil_scoped_release>());
  m.def("entries", [] { return rows_of(gpu::entries()); });
  // Occupies the device, so that errors occur here.
  m.def("device", [](int number) {
    Device& occupied = device(number);
    occupied.free_B();
    return capsule_of(occupied);
  });
}

}  // namespace memkern::cuda
