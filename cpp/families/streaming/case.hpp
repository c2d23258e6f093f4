// Preparation of the cases of streaming kernels.
#pragma once

#include <memory>
#include <string>

#include "engine/problem.hpp"

namespace memkern {

// The integers of a kernel over arrays of one length.
inline constexpr DeclaredInteger kLength[] = {{"elements", 1}};

// The factory of the families without a class of their own.
std::unique_ptr<Problem> make_streaming(const std::string& kernel, const std::string& dtype,
                                        const std::string& index_dtype, const Inputs& inputs,
                                        const Team& team, const Placement& placement);

}  // namespace memkern
