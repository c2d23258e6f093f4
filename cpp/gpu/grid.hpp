// Framework of kernels for a GPU: types with phases, which every thread of a block runs in order,
// with a barrier in between. On a device, all threads run a phase at the same time; compiled
// without CUDA, the same code runs one thread after the other, block by block, each in any order.
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

// Whether a call succeeded. The runtime keeps an error until it is read, and the next launch would
// read it, so it is cleared here; every call's result is passed to this function.
inline bool succeeded(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

inline void check(cudaError_t status, const char* what) {
  if (succeeded(status)) return;
  throw DeviceError(std::string(what) + " failed: " + cudaGetErrorString(status));
}

// A kernel K has
//   Args                 a POD, passed by value
//   Locals               variables of a thread that persist from phase to phase
//   kPhases              the number of phases
//   run<phase>(args, thread, locals, shared)
// where `shared` is the shared memory of the block, whose size is set by launch(). After a phase
// all threads of the block wait for each other, unless K has
//   After<phase>         the operation after the phase: JoinWarp, or AllThreads as elsewhere
// and K may have
//   kMinBlocks           1 if it needs many registers, so that all its loads are issued at once
//   Warps                std::true_type if it calls functions of the lanes of a warp (gpu/warp.hpp)
struct Nothing {};

// Base of kernels without variables that persist.
template <class A, int kNumber = 1>
struct Stateless {
  using Args = A;
  using Locals = Nothing;
  static constexpr int kPhases = kNumber;
};

inline constexpr int kWarp = 32;
// Limits the registers of a thread, so that blocks of every size up to this one can be launched.
inline constexpr int kMaxThreads = 1024;

// All threads of the block wait for each other.
struct AllThreads {
#ifdef MEMKERN_GPU_COMPILER
  template <class Locals>
  __device__ __forceinline__ static void step(const Thread&, Locals&) {
    __syncthreads();
  }
#else
  template <class Locals>
  static void step(const Thread&, Locals*) {}
#endif
};

// Combines locals.value of the threads of a warp by Join::join(x, y), always in the same order; the
// first of them has the result. All threads of the warp take part.
template <class Join>
struct JoinWarp {
  // Number of threads in the thread's warp.
  MEMKERN_ANYWHERE static int size(const Thread& thread) {
    const int left = thread.threads - thread.thread / kWarp * kWarp;
    return left < kWarp ? left : kWarp;
  }
#ifdef MEMKERN_GPU_COMPILER
  template <class Locals>
  __device__ __forceinline__ static void step(const Thread& thread, Locals& locals) {
    const int lanes = size(thread);
    const unsigned mask = lanes == kWarp ? ~0U : (1U << lanes) - 1;
#pragma unroll
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      const auto other = __shfl_down_sync(mask, locals.value, static_cast<unsigned>(apart));
      if (thread.thread % kWarp + apart < lanes) locals.value = Join::join(locals.value, other);
    }
  }
#else
  // For the first thread of a warp, whose threads' locals follow each other.
  template <class Locals>
  static void step(const Thread& first, Locals* locals) {
    const int lanes = size(first);
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      for (int lane = 0; lane + apart < lanes; ++lane) {
        locals[lane].value = Join::join(locals[lane].value, locals[lane + apart].value);
      }
    }
  }
#endif
};

template <class K, int kPhase, class = void>
struct AfterPhase {
  using Type = AllThreads;
};
template <class K, int kPhase>
struct AfterPhase<K, kPhase, std::void_t<typename K::template After<kPhase>>> {
  using Type = typename K::template After<kPhase>;
};

// Additional shared memory of each launched block: it limits the number of blocks that run at a
// time.
inline std::size_t& further_shared_B() {
  static std::size_t bytes = 0;
  return bytes;
}

// Shared memory of a block that every device provides by default.
inline constexpr std::int64_t kMaxShared_B = std::int64_t{48} * 1024;

// Refuses blocks with more shared memory than the current device allows, and raises the limit of a
// kernel to the limit of the device: later cases may need less, but the limit of the kernel also
// applies to cases prepared earlier.
template <class Kernel>
void request_shared(Kernel* kernel, std::size_t shared_B) {
  int device = 0;
  int most_B = 0;
  check(cudaGetDevice(&device), "querying the device in use");
  check(cudaDeviceGetAttribute(&most_B, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "querying the shared memory of a block");
  if (shared_B > static_cast<std::size_t>(most_B)) {
    const std::size_t further_B = further_shared_B();
    throw InputError("block_shared is " + std::to_string(further_B) + " B, but this kernel needs " +
                     std::to_string(shared_B - further_B) + " B itself, and a block on cuda:" +
                     std::to_string(device) + " has at most " + std::to_string(most_B) + " B");
  }
  if (shared_B <= static_cast<std::size_t>(kMaxShared_B)) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_B),
        "requesting shared memory");
}

#ifdef MEMKERN_GPU_COMPILER

template <class K, int kPhase>
__device__ __forceinline__ void phases(const typename K::Args& args, const Thread& thread,
                                       typename K::Locals& locals, unsigned char* shared) {
  K::template run<kPhase>(args, thread, locals, shared);
  if constexpr (kPhase + 1 < K::kPhases) {
    AfterPhase<K, kPhase>::Type::step(thread, locals);
    phases<K, kPhase + 1>(args, thread, locals, shared);
  }
}

// If K::kMinBlocks is 1, a thread may have as many registers as a block of kMaxThreads allows.
// Otherwise ptxas uses fewer registers so that several such blocks run at a time, and therefore
// moves loads behind the first use of a loaded value.
template <class K, class = void>
inline constexpr int kMinBlocks = 0;
template <class K>
inline constexpr int kMinBlocks<K, std::void_t<decltype(K::kMinBlocks)>> = K::kMinBlocks;

template <class K>
__global__ void __launch_bounds__(kMaxThreads, kMinBlocks<K>) grid(const typename K::Args args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Thread thread{blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x),
                      static_cast<int>(blockDim.x)};
  typename K::Locals locals;
  phases<K, 0>(args, thread, locals, shared);
}

// Starts a kernel; without a queue, loads it only. (The runtime would load it at its first launch,
// which takes longer than others and is not possible everywhere in a capture.)
template <class K>
void launch(const typename K::Args& args, std::int64_t blocks, int threads, std::size_t shared_B,
            void* queue) {
  shared_B += further_shared_B();
  if (queue == nullptr) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, grid<K>), "loading a kernel");
    request_shared(grid<K>, shared_B);
    return;
  }
  grid<K><<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_B,
            static_cast<cudaStream_t>(queue)>>>(args);
  check(cudaGetLastError(), "launching a kernel");
}

// Number of blocks that the device runs at a time.
template <class K>
std::int64_t resident_blocks(int threads, std::size_t shared_B) {
  struct Known {
    int device = -1;
    int threads = 0;
    std::size_t shared_B = 0;
    std::int64_t blocks = 0;
  };
  // Result of the last call, since the query takes about as long as a launch.
  static Known known;
  shared_B += further_shared_B();
  int device = 0;
  check(cudaGetDevice(&device), "querying the device in use");
  if (known.device != device || known.threads != threads || known.shared_B != shared_B) {
    int units = 0;
    int each = 0;
    check(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device),
          "querying the number of multiprocessors");
    // Without the request, no block would fit.
    request_shared(grid<K>, shared_B);
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, grid<K>, threads, shared_B),
          "querying the number of blocks of a multiprocessor");
    known = {device, threads, shared_B, std::int64_t{units} * each};
  }
  return known.blocks;
}

#else

template <class K>
std::int64_t resident_blocks(int, std::size_t) {
  return emulated::kResidentBlocks;
}

// A phase and its following operation, with type-erased arguments, because there are hundreds of
// kernels.
struct Phase {
  void (*run)(const void* args, const Thread& thread, void* locals, unsigned char* shared);
  void (*after)(const Thread& first, void* locals);  // for each warp
};

template <class K, int kPhase>
constexpr Phase phase() {
  using Locals = typename K::Locals;
  return {[](const void* args, const Thread& thread, void* locals, unsigned char* shared) {
            K::template run<kPhase>(*static_cast<const typename K::Args*>(args), thread,
                                    *static_cast<Locals*>(locals), shared);
          },
          [](const Thread& first, void* locals) {
            AfterPhase<K, kPhase>::Type::step(first, static_cast<Locals*>(locals));
          }};
}

struct Launched {
  std::vector<Phase> phases;
  std::vector<std::byte> args;
  std::size_t locals_B;
  bool warps;  // lanes of a warp run in lock step
  emulated::Shape shape;
};

inline void run_block(const Launched& l, std::int64_t block) {
  const int threads = l.shape.threads;
  // Allocated for each block, so that a sanitizer detects accesses beyond the end. The pattern is
  // arbitrary, because initial values are undefined.
  constexpr std::byte kUndefined{0xA5};
  std::vector<std::byte> locals(l.locals_B * static_cast<std::size_t>(threads), kUndefined);
  std::vector<std::uint64_t> memory(l.shape.shared_B / 8 + 1, 0xA5A5A5A5A5A5A5A5U);
  auto* shared = reinterpret_cast<unsigned char*>(memory.data());
  const auto locals_of = [&](int t) {
    return locals.data() + l.locals_B * static_cast<std::size_t>(t);
  };
  const auto run = [&](const Phase& phase, int t) {
    phase.run(l.args.data(), Thread{block, l.shape.blocks, t, threads}, locals_of(t), shared);
  };
  const int warps = (threads + kWarp - 1) / kWarp;
  for (const Phase& phase : l.phases) {
    const emulated::Shuffled order(l.warps ? warps : threads);
    for (int k = 0; k < (l.warps ? warps : threads); ++k) {
      const auto next = static_cast<int>(order[k]);
      if (!l.warps) {
        run(phase, next);
        continue;
      }
      const int first = next * kWarp;
      const emulated::Shuffled turns(kWarp);
      std::vector<int> lanes;
      for (int lane = 0; lane < kWarp; ++lane) lanes.push_back(static_cast<int>(turns[lane]));
      const int size = threads - first < kWarp ? threads - first : kWarp;
      emulated::Warp::run(size, lanes, [&](int lane) { run(phase, first + lane); });
    }
    for (int t = 0; t < threads; t += kWarp) {
      phase.after(Thread{block, l.shape.blocks, t, threads}, locals_of(t));
    }
  }
}

inline void run_blocks(const Launched& l) {
  const emulated::Shuffled order(l.shape.blocks);
  for (std::int64_t block = 0; block < l.shape.blocks; ++block) run_block(l, order[block]);
}

template <class K, int... kPhases>
std::vector<Phase> phases_of(std::integer_sequence<int, kPhases...>) {
  return {phase<K, kPhases>()...};
}

inline void launch_erased(const Launched& l, void* queue) {
  // The first phase identifies the kernel.
  const auto* kernel = reinterpret_cast<const void*>(l.phases.front().run);
  if (queue == nullptr) {
    check(emulated_load(kernel), "loading a kernel");
    request_shared(kernel, l.shape.shared_B);
    return;
  }
  emulated::counts().blocks = l.shape.blocks;
  emulated::counts().shared_B = l.shape.shared_B;
  emulated_launch(kernel, l.shape, l.args, static_cast<cudaStream_t>(queue),
                  [=] { run_blocks(l); });
  check(cudaGetLastError(), "launching a kernel");
}

template <class K, class = void>
inline constexpr bool kWarps = false;
template <class K>
inline constexpr bool kWarps<K, std::void_t<typename K::Warps>> = K::Warps::value;

template <class K>
void launch(const typename K::Args& args, std::int64_t blocks, int threads, std::size_t shared_B,
            void* queue) {
  static_assert(std::is_trivially_copyable_v<typename K::Locals>);
  typename K::Args copy = args;
  emulated::clear_padding(copy);
  const auto* bytes = reinterpret_cast<const std::byte*>(&copy);
  launch_erased({phases_of<K>(std::make_integer_sequence<int, K::kPhases>()),
                 {bytes, bytes + sizeof copy},
                 sizeof(typename K::Locals),
                 kWarps<K>,
                 {blocks, threads, shared_B + further_shared_B()}},
                queue);
}

#endif

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
