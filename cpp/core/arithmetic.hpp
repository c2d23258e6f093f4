// Integer arithmetic on sizes that users give: an overflow throws InputError.
#pragma once

#include <cstdint>
#include <string>

#include "core/errors.hpp"

namespace memkern {

inline std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) {
    throw InputError(std::string(what) + " does not fit 64 bits: use smaller sizes");
  }
  return out;
}

inline std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) {
    throw InputError(std::string(what) + " does not fit 64 bits: use smaller sizes");
  }
  return out;
}

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  const std::int64_t padded = checked_add(value, multiple - 1, "a buffer size");
  return padded / multiple * multiple;
}

}  // namespace memkern
