// What runs between two readings of the clock: a body, and the range that one worker owns. Knows no
// clock, no thread, no Python.
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

// Inlined without asking: what is called from inside a target's region and not inlined there is
// compiled for the baseline, and the linker keeps whichever copy it meets first.
#define MEMKERN_INLINE inline __attribute__((always_inline))
// The same, for a GPU as well.
#ifdef __CUDACC__
#define MEMKERN_ANYWHERE __host__ __device__ __forceinline__
#else
#define MEMKERN_ANYWHERE MEMKERN_INLINE
#endif
// A loop as it is written. Unrolled ones gain nothing where each operation waits for memory, but
// take registers of a GPU, which then has room for fewer threads.
#ifdef __CUDA_ARCH__
#define MEMKERN_ROLLED _Pragma("unroll 1")
#else
#define MEMKERN_ROLLED
#endif

// The single place that keeps a compiler from dropping, merging or hoisting work: everything
// reachable from `p` may have been read and written by someone else.
MEMKERN_INLINE void do_not_optimize(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

}  // namespace memkern
