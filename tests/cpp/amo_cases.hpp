// Cases of atomic memory operations, for the tests on processors and on the emulated GPU.
#pragma once

#include "families/amo/patterns.hpp"
#include "support.hpp"

namespace memkern::testing {

inline bool is_amo(const std::string& kernel) { return kernel.starts_with("amo."); }

struct Shape {
  std::int64_t iters;
  std::int64_t stride;
  std::int64_t hot;
  bool shared;
  int workers = 1;

  std::int64_t count() const { return workers * iters; }
  // Number of words that a kernel accesses.
  std::int64_t words(const std::string& kernel) const {
    const std::int64_t places = kernel == "amo.central" ? hot : shared ? iters : count();
    return (places - 1) * stride + 1;
  }
};

// Indices: one more than iterations, as kernels access IDX[i + 1].
inline Integers index_of(const std::string& kernel, const Shape& s) {
  const std::int64_t bound = kernel == "amo.ptrchase" ? s.count() + 1 : s.words(kernel);
  return scattered_values<std::int64_t>(s.count() + 1, 3, bound);
}

// What a caller gives for a case with these words and indices.
inline Given amo_case(const Entry& e, const Shape& s, const Integers& index, std::int64_t words,
                      std::int64_t operand) {
  Given given{e.kernel, e.dtype, e.index, {}, {}, {}};
  given.integers = {{"workers", s.workers}, {"iters", s.iters}, {"words", words},
                    {"stride", s.stride},   {"hot", s.hot},     {"shared", s.shared ? 1 : 0},
                    {"operand", operand}};
  if (!given.index_dtype.empty()) given.indices["IDX"] = index;
  return given;
}

}  // namespace memkern::testing
