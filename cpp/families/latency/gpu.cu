// Loads that depend on each other on a GPU: each worker is the only thread of its block.
#include "families/latency/args.hpp"

#include <type_traits>

#include "gpu/grid.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// Which caches a load uses: all, or L2 only.
enum class Through { AllCaches, L2 };

template <Through kThrough>
MEMKERN_ANYWHERE const std::byte* next_of(const std::byte* line) {
#ifdef __CUDA_ARCH__
  const std::byte* next = nullptr;
  if constexpr (kThrough == Through::L2) {
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(line) : "memory");
  } else {
    asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(next) : "l"(line) : "memory");
  }
  return next;
#else
  return *reinterpret_cast<const std::byte* const*>(line);
#endif
}

struct ChaseGridArgs {
  ChaseArgs a;
  std::int64_t accesses;  // of all workers
};

template <int kChains, Through kThrough>
struct Chase {
  using Args = ChaseGridArgs;
  using Locals = Nothing;
  static constexpr int kPhases = 1;
  static constexpr int kMinBlocks = 1;

  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    if (thread.thread != 0) return;
    const std::int64_t longer = thread.block < g.accesses % thread.blocks ? 1 : 0;
    const std::int64_t accesses = g.accesses / thread.blocks + longer;
    Chain* chains = g.a.chains + thread.block * ChaseArgs::kMaxChains;
    const std::byte* at[kChains];
    for (int j = 0; j < kChains; ++j) at[j] = chains[j].line;
    MEMKERN_ROLLED
    for (std::int64_t i = 0; i < accesses / kChains; ++i) {
      for (int j = 0; j < kChains; ++j) at[j] = next_of<kThrough>(at[j]);
    }
    // Whole invocations leave no rest.
    const auto rest = static_cast<int>(accesses % kChains);
    std::uint64_t* ends = g.a.ends + thread.block * g.a.ends_stride;
    for (int j = 0; j < kChains; ++j) {
      if (j < rest) at[j] = next_of<kThrough>(at[j]);
      chains[j].line = at[j];
      ends[j] = static_cast<std::uint64_t>(at[j] - g.a.ring);
    }
    ends[ChaseArgs::kAccesses] += static_cast<std::uint64_t>(accesses);
  }
};

template <int kChains, Through kThrough>
void start(const void* p, Range range, int threads, void* queue) {
  const ChaseArgs& a = *static_cast<const ChaseArgs*>(p);
  launch<Chase<kChains, kThrough>>({a, range.end - range.begin}, a.workers, threads, 0, queue);
}

// clang-format off
#define MEMKERN_CHASE(chains)                                                           \
  {{"latency.chase", "simt", "uint64", "int64", nullptr, nullptr, 0, 0, #chains},       \
   start<chains, Through::AllCaches>},                                                  \
  {{"latency.chase", "l2", "uint64", "int64", nullptr, nullptr, 0, 0, #chains},         \
   start<chains, Through::L2>},

constexpr DeviceEntry kEntries[] = {
    MEMKERN_CHASE(1) MEMKERN_CHASE(2) MEMKERN_CHASE(4) MEMKERN_CHASE(8) MEMKERN_CHASE(16)
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], 1);

}  // namespace
}  // namespace memkern::gpu
