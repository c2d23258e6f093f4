// What a kernel is to everything around it: a body, the range one worker owns, and a table of
// bodies per instruction set. Knows no clock, no thread, no Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

// One body as it was compiled. Tables of entries are constant data: a table built by code inside
// a target's region would run that target's instructions at load time.
struct Entry {
  const char* kernel;
  const char* variant;
  const char* dtype;
  const char* index;  // "" where a kernel has no index array
  Body body;
  Finish finish;
  int arrays = 0;         // that the body takes as its spec declares them; 0 where the family knows
  int unroll = 0;         // vectors or accumulators per step; 0 for the kernel's own choice
  int indices = 0;        // index arrays that the body takes; 0 where the family knows
  const char* form = "";  // which of the operations that the kernel is built with
};

struct RegisteredEntry : Entry {
  std::string isa;
};

// All entries of all targets in this binary, in order of registration.
const std::vector<RegisteredEntry>& registered_entries();
// The entry asked for, or nullptr.
const RegisteredEntry* find_entry(const std::string& kernel, const std::string& variant,
                                  const std::string& isa, const std::string& dtype,
                                  const std::string& index, int unroll = 0,
                                  const std::string& form = "");
// Names of the instruction sets in this binary that this processor runs, widest first.
std::vector<std::string> supported_isas();
// Bytes in a vector of an instruction set; 0 where that is for the processor to say.
int vector_size(const std::string& isa);

// Registers one target's table; `target` is Highway's bit for it.
class TableRegistrar {
 public:
  TableRegistrar(std::int64_t target, const Entry* entries, std::size_t size);
};

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

// Highway has one-lane stand-ins for targets without vectors. The simd technique leaves those
// out: explicit vectors of one lane would be the scalar technique by another name.
#define MEMKERN_TARGET_EXISTS \
  (!MEMKERN_SIMD || (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128))

// The single place that keeps a compiler from dropping, merging or hoisting work: everything
// reachable from `p` may have been read and written by someone else.
MEMKERN_INLINE void do_not_optimize(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

}  // namespace memkern
