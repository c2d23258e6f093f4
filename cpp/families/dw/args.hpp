// The hopping term of the domain-wall operator: arguments shared by all techniques and by the code
// that prepares them.
#pragma once

#include <cstdint>

namespace memkern {

struct DwArgs {
  static constexpr int kDirections = 8;  // forward in x, y, z, t, backward in x, y, z, t
  static constexpr int kSpinor = 24;     // real numbers of 4 spins and 3 colours
  static constexpr int kLinks = 8 * 18;  // of the eight matrices of a site

  const void* links = nullptr;
  const void* psi = nullptr;
  void* result = nullptr;
  const void* order = nullptr;  // sites, in turn
  // For each direction of those twice the neighbour, plus one where its lanes are to be permuted.
  const void* neighbours = nullptr;
  const void* permutations = nullptr;  // of lanes, for each direction
  std::int64_t sites = 0;
  std::int64_t inner = 0;     // vectors that Ls takes
  std::int64_t distance = 0;  // of the software prefetch, in sites
  bool into_l1 = false;       // in place of L2
};

}  // namespace memkern
