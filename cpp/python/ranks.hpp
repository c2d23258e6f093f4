// Common code of the modules of one-sided libraries.
#pragma once

#include <pybind11/pybind11.h>

#include "backends/ranks/interface.hpp"

namespace memkern {

// Defines all functions of the library's module except `start`, which has to be called first.
void define_ranks(pybind11::module_& m, const ranks::Interface& library);

}  // namespace memkern
