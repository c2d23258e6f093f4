// Translates C++ errors to Python exceptions, in every module.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "core/errors.hpp"

namespace memkern {

inline void set_error(const char* name, const char* message) {
  const auto errors = pybind11::module_::import("memkern.errors");
  PyErr_SetString(errors.attr(name).ptr(), message);
}

inline void translate_errors() {
  pybind11::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(std::move(p));
    } catch (const InputError& e) {
      set_error("InputError", e.what());
    } catch (const MemoryError& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    } catch (const DeviceError& e) {
      set_error("DeviceError", e.what());
    }
  });
}

}  // namespace memkern
