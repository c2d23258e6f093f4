// What loading a module must not change. Included by one source of each module.
#pragma once

#include <cfenv>

namespace memkern {
namespace {

inline std::fenv_t& before_loading() {
  static std::fenv_t kept;
  return kept;
}

// Before all other constructors of the module.
[[gnu::constructor(101)]] void keep_arithmetic() { std::fegetenv(&before_loading()); }

// GCC and clang give a module that is linked with -Ofast or -ffast-math, be it by a wrapper of the
// compiler, a constructor that makes this thread and all later ones flush subnormal numbers.
void restore_arithmetic() { std::fesetenv(&before_loading()); }

}  // namespace
}  // namespace memkern
