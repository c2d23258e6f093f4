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

// Always inlined: a function that is called from the region of a target without being inlined is
// compiled for the baseline, and the linker keeps the first copy.
#define MEMKERN_INLINE inline __attribute__((always_inline))
// Whether the compiler is CUDA's or HIP's.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define MEMKERN_GPU_COMPILER
#endif
// The same, also callable on a GPU.
#ifdef MEMKERN_GPU_COMPILER
#define MEMKERN_ANYWHERE __host__ __device__ MEMKERN_INLINE
#else
#define MEMKERN_ANYWHERE MEMKERN_INLINE
#endif
// Whether the current compilation is for a GPU, not for the host.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define MEMKERN_ON_DEVICE
#endif
// Prevents unrolling of the next loop on a GPU. If each operation waits for memory, unrolling has
// no benefit, but needs registers and so reduces the number of threads.
#ifdef MEMKERN_ON_DEVICE
#define MEMKERN_ROLLED _Pragma("unroll 1")
#else
#define MEMKERN_ROLLED
#endif

// Prevents the compiler from removing, merging or hoisting work: it must assume that everything
// reachable from `p` is read and written here.
MEMKERN_INLINE void do_not_optimize(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

}  // namespace memkern
