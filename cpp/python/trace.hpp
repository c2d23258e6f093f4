#pragma once

#include <pybind11/pybind11.h>

namespace memkern {

void define_trace(pybind11::module_& m);

}  // namespace memkern
