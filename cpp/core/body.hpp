// The timed code: bodies, each called with the range of iterations of one worker. They use no
// clock, no threads and no Python.
#pragma once

#include <cstdint>

namespace memkern {

// Iterations [begin, end) of one invocation.
struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// `args` points to the family's POD; `worker` selects private buffers and partial results.
using Body = void (*)(const void* args, Range range, int worker);
// Combines the partial results of `workers` workers; run by one of them after all bodies.
using Finish = void (*)(const void* args, int workers);

// Always inlined: a function that is called from the region of a target, but not inlined there, is
// compiled for the baseline, and the linker keeps the first copy that it finds.
#define MEMKERN_INLINE inline __attribute__((always_inline))
// The same, also callable on a GPU.
#ifdef __CUDACC__
#define MEMKERN_ANYWHERE __host__ __device__ __forceinline__
#else
#define MEMKERN_ANYWHERE MEMKERN_INLINE
#endif
// Prevents unrolling of the next loop on a GPU. Where each operation waits for memory, unrolling
// gains nothing, but takes registers and so leaves room for fewer threads.
#ifdef __CUDA_ARCH__
#define MEMKERN_ROLLED _Pragma("unroll 1")
#else
#define MEMKERN_ROLLED
#endif

// Prevents the compiler from removing, merging or hoisting work: it must assume that everything
// reachable from `p` is read and written here.
MEMKERN_INLINE void do_not_optimize(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

}  // namespace memkern
