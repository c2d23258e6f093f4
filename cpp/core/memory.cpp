#include "core/memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "core/body.hpp"
#include "core/sampler.hpp"

namespace memkern {
namespace {

// A line of each four, so that prefetchers of pairs of lines have no effect.
struct alignas(256) Place {
  Place* next = nullptr;
};
constexpr std::size_t kPlaces = 16;
// One page, so that none but the first load may wait for a translation.
struct alignas(4096) Page {
  std::array<Place, kPlaces> places;
};
// No distance occurs twice in a row, which prefetchers would foresee.
constexpr std::array<std::size_t, kPlaces> kOrder = {0, 9, 3,  13, 6,  1, 11, 15,
                                                     4, 8, 14, 2,  10, 5, 12, 7};
constexpr int kTries = 2;

void flush([[maybe_unused]] Page& page) {
#if defined(__x86_64__)
  for (const Place& place : page.places) _mm_clflush(&place);
  _mm_mfence();
#elif defined(__aarch64__)
  for (const Place& place : page.places) {
    asm volatile("dc civac, %0" : : "r"(&place) : "memory");
  }
  asm volatile("dsb ish" : : : "memory");
#endif
}

}  // namespace

double measure_memory() {
#if defined(__x86_64__) || defined(__aarch64__)
  static thread_local Page page;
  for (std::size_t k = 0; k < kPlaces; ++k) {
    page.places.at(kOrder.at(k)).next = &page.places.at(kOrder.at((k + 1) % kPlaces));
  }
  double shortest_s = std::numeric_limits<double>::infinity();
  for (int k = 0; k < kTries; ++k) {
    flush(page);
    const Place* place = page.places.data();
    do_not_optimize(place);  // as the compiler knows the places
    const double start = now();
    for (std::size_t i = 0; i < kPlaces; ++i) place = place->next;
    do_not_optimize(place);
    shortest_s = std::min(shortest_s, now() - start);
  }
  return shortest_s / static_cast<double>(kPlaces);
#else
  return std::numeric_limits<double>::quiet_NaN();
#endif
}

}  // namespace memkern
