// Arguments of the hopping term of the domain-wall operator, for all techniques and the code that
// prepares them.
#pragma once

#include <cstdint>

namespace memkern {

struct DwArgs {
  static constexpr int kDirections = 8;  // forward in x, y, z, t, backward in x, y, z, t
  static constexpr int kSpinor = 24;     // real numbers: 4 spins, 3 colours, complex
  static constexpr int kLinks = 8 * 18;  // real numbers of the eight matrices of a site

  const void* links = nullptr;
  const void* psi = nullptr;
  void* result = nullptr;
  const void* order = nullptr;  // sites in the order in which they are visited
  // For each visited site and direction twice the neighbour, plus one if its lanes are permuted.
  const void* neighbours = nullptr;
  const void* permutations = nullptr;  // of lanes, for each direction
  std::int64_t sites = 0;
  std::int64_t inner = 0;       // vectors per site in the direction s
  std::int64_t distance = 0;    // of the software prefetch, in sites
  bool into_l1 = false;         // prefetch into L1 instead of L2
  std::int64_t prefetched = 0;  // bit k: whether neighbours in direction k are prefetched
};

}  // namespace memkern
