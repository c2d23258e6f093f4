// Division by a number that is known before a kernel starts, since devices have no instruction for
// division.
#pragma once

#include <cstdint>

#include "core/body.hpp"

namespace memkern::gpu {

class Divisor {
 public:
  // `value` must be at least 1.
  explicit Divisor(std::int64_t value)
      : value_(static_cast<std::uint64_t>(value)), reciprocal_(~std::uint64_t{0} / value_) {}

  // The quotient of a non-negative number, rounded down.
  MEMKERN_ANYWHERE std::int64_t quotient(std::int64_t number) const {
    const auto n = static_cast<std::uint64_t>(number);
    // At most 1 too small, because the reciprocal is less than 2 units too small.
    std::uint64_t found = high_product(n, reciprocal_);
    if (n - found * value_ >= value_) ++found;
    return static_cast<std::int64_t>(found);
  }

 private:
  MEMKERN_ANYWHERE static std::uint64_t high_product(std::uint64_t x, std::uint64_t y) {
#ifdef __CUDA_ARCH__
    return __umul64hi(x, y);
#else
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(x) * y >> 64);
#endif
  }

  std::uint64_t value_;
  std::uint64_t reciprocal_;
};

}  // namespace memkern::gpu
