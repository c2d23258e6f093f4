// Functions of the lanes of a warp. A kernel that calls them declares Warps, and all lanes of a
// mask call the same function, as in CUDA.
#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/grid.hpp"

namespace memkern::gpu {

// A lane's value as a word, for lanes that exchange them without a GPU.
template <class T>
std::uint64_t word_of(T value) {
  static_assert(sizeof value <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

MEMKERN_ANYWHERE int lane_of(const Thread& thread) { return thread.thread % kWarp; }
// The lane that runs this.
MEMKERN_ANYWHERE int this_lane() {
#ifdef MEMKERN_ON_DEVICE
  return static_cast<int>(threadIdx.x) % kWarp;
#elif defined(MEMKERN_GPU_COMPILER)
  return 0;
#else
  return emulated::Warp::lane();
#endif
}

// Number of lanes of a mask, and the first of them, if there are any.
MEMKERN_ANYWHERE unsigned count_of(unsigned mask) {
#ifdef MEMKERN_ON_DEVICE
  return static_cast<unsigned>(__popc(mask));
#else
  return static_cast<unsigned>(__builtin_popcount(mask));
#endif
}
MEMKERN_ANYWHERE int first_of(unsigned mask) {
#ifdef MEMKERN_ON_DEVICE
  return __ffs(static_cast<int>(mask)) - 1;
#else
  return __builtin_ctz(mask);
#endif
}

// The lanes that run this at the same time.
MEMKERN_ANYWHERE unsigned active_lanes() {
#ifdef MEMKERN_ON_DEVICE
  return __activemask();
#elif defined(MEMKERN_GPU_COMPILER)
  return 1;
#else
  return emulated::calling(__func__);
#endif
}

// The lanes of `mask` that call it with the same value.
template <class T>
MEMKERN_ANYWHERE unsigned lanes_with([[maybe_unused]] unsigned mask, [[maybe_unused]] T value) {
#ifdef MEMKERN_ON_DEVICE
  return __match_any_sync(mask, value);
#elif defined(MEMKERN_GPU_COMPILER)
  return 1;
#else
  const auto words = emulated::exchange_in(mask, __func__, word_of(value));
  unsigned same = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    const bool equal = words[static_cast<std::size_t>(lane)] == word_of(value);
    if ((mask >> lane & 1U) != 0 && equal) same |= 1U << lane;
  }
  return same;
#endif
}

// The lanes of `mask` for which the condition holds.
MEMKERN_ANYWHERE unsigned lanes_where([[maybe_unused]] unsigned mask,
                                      [[maybe_unused]] bool condition) {
#ifdef MEMKERN_ON_DEVICE
  return __ballot_sync(mask, condition);
#elif defined(MEMKERN_GPU_COMPILER)
  return condition ? 1 : 0;
#else
  const auto words = emulated::exchange_in(mask, __func__, condition ? 1 : 0);
  unsigned found = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1U) != 0 && words[static_cast<std::size_t>(lane)] != 0) {
      found |= 1U << lane;
    }
  }
  return found;
#endif
}

// The value of another lane of `mask`.
template <class T>
MEMKERN_ANYWHERE T from_lane([[maybe_unused]] unsigned mask, T value, [[maybe_unused]] int lane) {
#ifdef MEMKERN_ON_DEVICE
  return __shfl_sync(mask, value, lane);
#elif defined(MEMKERN_GPU_COMPILER)
  return value;
#else
  const auto words = emulated::exchange_in(mask, __func__, word_of(value));
  if ((mask >> lane & 1U) == 0)
    emulated::Warp::fail("a value is read from a lane outside the mask");
  std::memcpy(&value, &words[static_cast<std::size_t>(lane)], sizeof value);
  return value;
#endif
}

// Join::join of the values of a warp's `lanes` first lanes, in the order of JoinWarp; the first
// lane has the result. May be called in a loop.
template <class Join, class T>
MEMKERN_ANYWHERE T join_lanes(const Thread& thread, T value) {
  const int lanes = JoinWarp<Join>::size(thread);
  const unsigned mask = lanes == kWarp ? ~0U : (1U << lanes) - 1;
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    const int other = lane_of(thread) + apart;
    const T found = from_lane(mask, value, other < lanes ? other : lane_of(thread));
    if (other < lanes) value = Join::join(value, found);
  }
  return value;
}

}  // namespace memkern::gpu
