// Instructions of devices that have no name in CUDA's and HIP's C++.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/body.hpp"

namespace memkern::gpu {

// A clock of the device in nanoseconds; only on a device.
MEMKERN_ANYWHERE std::int64_t nanoseconds() {
  std::int64_t now = 0;
#if defined(__CUDA_ARCH__)
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#elif defined(MEMKERN_ON_DEVICE)
  now = static_cast<std::int64_t>(__builtin_amdgcn_s_memrealtime()) * 10;  // counts at 100 MHz
#endif
  return now;
}

// Adds 1 and returns the old value. Earlier writes are visible to a thread that gets a later value.
MEMKERN_ANYWHERE unsigned count_in_order(unsigned* count) {
#if defined(__CUDA_ARCH__)
  unsigned before = 0;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(count))
               : "memory");
  return before;
#elif defined(MEMKERN_ON_DEVICE)
  return __hip_atomic_fetch_add(count, 1U, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
#else
  return (*count)++;
#endif
}

// Which caches a load uses: all, or L2 only.
enum class Through { AllCaches, L2 };

// Loads the address in the first word of a line.
template <Through kThrough>
MEMKERN_ANYWHERE const std::byte* next_of(const std::byte* line) {
#if defined(__CUDA_ARCH__)
  const std::byte* next = nullptr;
  if constexpr (kThrough == Through::L2) {
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(line) : "memory");
  } else {
    asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(next) : "l"(line) : "memory");
  }
  return next;
#elif defined(MEMKERN_ON_DEVICE)
  // Atomic loads bypass the caches that are not shared within their scope, volatile ones always.
  constexpr int kScope =
      kThrough == Through::L2 ? __HIP_MEMORY_SCOPE_AGENT : __HIP_MEMORY_SCOPE_WAVEFRONT;
  return __hip_atomic_load(reinterpret_cast<const std::byte* const*>(line), __ATOMIC_RELAXED,
                           kScope);
#else
  return *reinterpret_cast<const std::byte* const volatile*>(line);
#endif
}

}  // namespace memkern::gpu
