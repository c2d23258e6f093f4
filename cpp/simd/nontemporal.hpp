// Stores that do not read the cache line first. x86-64 has non-temporal ones for single values. Of
// AArch64, single values have ordinary stores, pairs of registers non-temporal ones (STNP), and a
// block of lines that will be written whole can be zeroed instead of read (DC ZVA).
#pragma once

#include "core/body.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace memkern {

#if defined(__x86_64__)

// The empty asm hides the origin of the bits: clang would otherwise store a floating-point number,
// for which there is no non-temporal instruction.
MEMKERN_INLINE void store_nontemporal(double* to, double value) {
  auto bits = __builtin_bit_cast(long long, value);
  asm("" : "+r"(bits));
  _mm_stream_si64(reinterpret_cast<long long*>(to), bits);
}
MEMKERN_INLINE void store_nontemporal(float* to, float value) {
  auto bits = __builtin_bit_cast(int, value);
  asm("" : "+r"(bits));
  _mm_stream_si32(reinterpret_cast<int*>(to), bits);
}
MEMKERN_INLINE void store_nontemporal(std::uint64_t* to, std::uint64_t value) {
  _mm_stream_si64(reinterpret_cast<long long*>(to), static_cast<long long>(value));
}
MEMKERN_INLINE void store_nontemporal(std::uint32_t* to, std::uint32_t value) {
  _mm_stream_si32(reinterpret_cast<int*>(to), static_cast<int>(value));
}
MEMKERN_INLINE void store_fence() { _mm_sfence(); }

#else

template <class T>
MEMKERN_INLINE void store_nontemporal(T* to, T value) {
  *to = value;
}
MEMKERN_INLINE void store_fence() {}

#endif

#if defined(__aarch64__)

// The bytes of a block that is zeroed at once, 0 if a program may not.
MEMKERN_INLINE std::uintptr_t zero_block_B() {
  std::uint64_t about;
  asm("mrs %0, dczid_el0" : "=r"(about));
  return (about & 16) != 0 ? 0 : std::uintptr_t{4} << (about & 15);
}
// Zeroes the blocks of this size that are whole in [begin, end).
MEMKERN_INLINE void zero_blocks(void* begin, void* end, std::uintptr_t block_B) {
  auto at = (reinterpret_cast<std::uintptr_t>(begin) + block_B - 1) / block_B * block_B;
  for (; at + block_B <= reinterpret_cast<std::uintptr_t>(end); at += block_B) {
    asm volatile("dc zva, %0" : : "r"(at) : "memory");
  }
}

#endif

}  // namespace memkern
