// Non-temporal stores of single values, which do not read the cache line first. Processors other
// than x86-64 have none for single values: there, these are ordinary stores.
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

}  // namespace memkern
