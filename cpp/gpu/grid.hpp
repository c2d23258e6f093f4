// How kernels for a GPU are written: as types with phases, which every thread of a block runs in
// order, with a barrier in between. On a device, all threads run a phase at the same time; compiled
// without CUDA, the same code runs one thread after the other, block by block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/body.hpp"
#include "core/errors.hpp"

namespace memkern::gpu {

// Position of a thread.
struct Thread {
  std::int64_t block;
  std::int64_t blocks;
  int thread;
  int threads;  // per block

  MEMKERN_ANYWHERE std::int64_t index() const { return block * threads + thread; }
  MEMKERN_ANYWHERE std::int64_t total() const { return blocks * threads; }
};

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(what) + " failed: " + cudaGetErrorString(status));
}

// A kernel K has
//   Args                 a POD, passed by value
//   Locals               variables of a thread that persist from phase to phase
//   kPhases              the number of phases
//   run<phase>(args, thread, locals, shared)
// where `shared` is the shared memory of the block, whose size is set by launch().
struct Nothing {};

#ifdef __CUDACC__

template <class K, int kPhase>
__device__ __forceinline__ void phases(const typename K::Args& args, const Thread& thread,
                                       typename K::Locals& locals, unsigned char* shared) {
  K::template run<kPhase>(args, thread, locals, shared);
  if constexpr (kPhase + 1 < K::kPhases) {
    __syncthreads();
    phases<K, kPhase + 1>(args, thread, locals, shared);
  }
}

// Limits the registers of a thread, so that blocks of every size up to this one can be launched.
inline constexpr int kMaxThreads = 1024;

template <class K>
__global__ void __launch_bounds__(kMaxThreads) grid(const typename K::Args args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Thread thread{blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x),
                      static_cast<int>(blockDim.x)};
  typename K::Locals locals;
  phases<K, 0>(args, thread, locals, shared);
}

template <class K>
void launch(const typename K::Args& args, std::int64_t blocks, int threads, std::size_t shared_B,
            void* queue) {
  grid<K><<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_B,
            static_cast<cudaStream_t>(queue)>>>(args);
  check(cudaGetLastError(), "launching a kernel");
}

#else

// A phase with type-erased arguments, because there are hundreds of kernels.
using Phase = void (*)(const void* args, const Thread& thread, void* locals, unsigned char* shared);

template <class K, int kPhase>
void phase(const void* args, const Thread& thread, void* locals, unsigned char* shared) {
  K::template run<kPhase>(*static_cast<const typename K::Args*>(args), thread,
                          *static_cast<typename K::Locals*>(locals), shared);
}

inline void run_blocks(const std::vector<Phase>& phases, const void* args, std::size_t locals_B,
                       std::int64_t blocks, int threads, std::size_t shared_B) {
  std::vector<std::byte> locals(locals_B * static_cast<std::size_t>(threads));
  for (std::int64_t block = 0; block < blocks; ++block) {
    // Allocated for each block, so that a sanitizer detects accesses beyond the end. The pattern is
    // arbitrary, because initial values are undefined.
    std::vector<std::uint64_t> shared(shared_B / 8 + 1, 0xA5A5A5A5A5A5A5A5U);
    for (const Phase phase : phases) {
      for (int t = 0; t < threads; ++t) {
        phase(args, Thread{block, blocks, t, threads},
              locals.data() + locals_B * static_cast<std::size_t>(t),
              reinterpret_cast<unsigned char*>(shared.data()));
      }
    }
  }
}

template <class K, int... kPhases>
std::vector<Phase> phases_of(std::integer_sequence<int, kPhases...>) {
  return {phase<K, kPhases>...};
}

inline void launch_erased(const std::vector<Phase>& phases, const void* args, std::size_t args_B,
                          std::size_t locals_B, std::int64_t blocks, int threads,
                          std::size_t shared_B, void* queue) {
  const auto* bytes = static_cast<const std::byte*>(args);
  const std::vector<std::byte> copy(bytes, bytes + args_B);
  emulated_launch(static_cast<cudaStream_t>(queue),
                  [=] { run_blocks(phases, copy.data(), locals_B, blocks, threads, shared_B); });
}

template <class K>
void launch(const typename K::Args& args, std::int64_t blocks, int threads, std::size_t shared_B,
            void* queue) {
  static_assert(std::is_trivially_copyable_v<typename K::Locals>);
  launch_erased(phases_of<K>(std::make_integer_sequence<int, K::kPhases>()), &args, sizeof args,
                sizeof(typename K::Locals), blocks, threads, shared_B, queue);
}

#endif

// Shared memory of a block that every device provides by default.
inline constexpr std::int64_t kMaxShared_B = std::int64_t{48} * 1024;

// Number of blocks for `work` items with `each` items per block, at most the limit of a grid.
inline constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 1;
inline std::int64_t blocks_for(std::int64_t work, std::int64_t each) {
  const std::int64_t blocks = (work + each - 1) / each;
  return blocks < 1 ? 1 : blocks < kMaxBlocks ? blocks : kMaxBlocks;
}

// Calls start(part) for parts of a range with at most `max_size` iterations each: a range can be
// too long for one grid.
template <class Start>
void in_grids(Range range, std::int64_t max_size, const Start& start) {
  for (std::int64_t begin = range.begin; begin < range.end; begin += max_size) {
    start(Range{begin, range.end - begin < max_size ? range.end : begin + max_size});
  }
}

}  // namespace memkern::gpu
