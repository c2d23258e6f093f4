#include "core/memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "core/body.hpp"
#include "core/buffer.hpp"
#include "core/errors.hpp"
#include "core/sampler.hpp"

namespace memkern {
namespace {

// Every fourth line, so that prefetchers of pairs of lines have no effect.
struct alignas(256) Place {
  Place* next = nullptr;
};
constexpr std::size_t kPlaces = 16;
// One page, so that only the first load may wait for a translation.
struct alignas(4096) Page {
  std::array<Place, kPlaces> places;
};
// No distance occurs twice in a row, since prefetchers would predict it.
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

constexpr std::int64_t kLine_B = 64;  // no cache line is shorter
// Loads of each line after which the caches are in a steady state.
constexpr std::int64_t kLoadsOfLine = 2;
// Short enough that one of the tries is not interrupted.
constexpr int kLoadTries = 8;
constexpr std::int64_t kLoads = 1 << 13;
// Number of sizes with loads almost as slow as from memory that end the measurement.
constexpr int kBeyond = 2;
constexpr double kAlmost = 0.85;
// No memory has a shorter latency: lines that were flushed may still be in a cache of the system.
constexpr double kLeastMemory_s = 40e-9;

// Random lines of a buffer. They are independent, so that the hit rate of a cache is the share of
// the lines that it holds, for any replacement policy.
class RandomLines {
 public:
  RandomLines(const std::byte* data, std::int64_t size_B)
      : data_(data), lines_(static_cast<std::uint64_t>(size_B / kLine_B)) {}

  // Loads a word, after `before`, the word of another line. All words are 0.
  std::uint64_t load(std::uint64_t before) {
    state_ = (state_ + before) * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t line = ((state_ >> 32U) * lines_) >> 32U;
    return *reinterpret_cast<const volatile std::uint64_t*>(data_ + line * kLine_B);
  }

 private:
  const std::byte* data_;
  std::uint64_t lines_;
  std::uint64_t state_ = 1;
};

double measure_loads(const std::byte* data, std::int64_t size_B) {
  RandomLines lines(data, size_B);
  for (std::int64_t at = 0; at + kLine_B <= size_B; at += kLine_B) {
    static_cast<void>(*reinterpret_cast<const volatile std::byte*>(data + at));
  }
  for (std::int64_t k = 0; k < kLoadsOfLine * (size_B / kLine_B); ++k) lines.load(0);
  double shortest_s = std::numeric_limits<double>::infinity();
  std::uint64_t word = 0;
  for (int k = 0; k < kLoadTries; ++k) {
    const double start_s = now();
    for (std::int64_t i = 0; i < kLoads; ++i) word = lines.load(word);
    do_not_optimize(&word);
    shortest_s = std::min(shortest_s, now() - start_s);
  }
  return shortest_s / static_cast<double>(kLoads);
}

}  // namespace

std::pair<std::vector<double>, double> measure_loads(const std::vector<std::int64_t>& sizes_B,
                                                     double most_s) {
  std::pair<std::vector<double>, double> result = {{}, measure_memory()};
  auto& [found, memory_s] = result;
  if (sizes_B.empty()) return result;
  if (sizes_B.front() < kLine_B || !std::is_sorted(sizes_B.begin(), sizes_B.end())) {
    throw InputError("sizes_B must increase, from a line of " + std::to_string(kLine_B) + " B on");
  }
  // The shortest of several, since others may use the memory during one.
  for (int k = 0; k < kLoadTries; ++k) memory_s = std::min(memory_s, measure_memory());
  const Buffer buffer(sizes_B.back(), {});
  const double end_s = now() + most_s;
  double last_s = 0;
  std::int64_t last_B = sizes_B.front();
  int beyond = 0;
  for (const std::int64_t size_B : sizes_B) {
    const double start_s = now();
    const double grown = static_cast<double>(size_B) / static_cast<double>(last_B);
    if (start_s + grown * last_s > end_s || beyond == kBeyond) break;
    if (!buffer.populate(found.empty() ? 0 : last_B, size_B)) break;
    found.push_back(measure_loads(buffer.data(), size_B));
    beyond = found.back() >= kAlmost * std::max(memory_s, kLeastMemory_s) ? beyond + 1 : 0;
    last_s = now() - start_s;
    last_B = size_B;
  }
  return result;
}

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
