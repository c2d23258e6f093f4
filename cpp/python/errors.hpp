// Translates C++ errors to Python exceptions, in every module.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "core/errors.hpp"

namespace memkern {

inline void translate_errors() {
  pybind11::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(std::move(p));
    } catch (const InputError& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const MemoryError& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    } catch (const DeviceError& e) {
      const auto errors = pybind11::module_::import("memkern.errors");
      PyErr_SetString(errors.attr("DeviceError").ptr(), e.what());
    }
  });
}

}  // namespace memkern
