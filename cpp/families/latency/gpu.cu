// Dependent loads on a GPU: of each worker's only thread, from memory; of all threads of a block,
// from shared memory.
#include "families/latency/args.hpp"

#include <type_traits>

#include "gpu/grid.hpp"
#include "gpu/instructions.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

struct ChaseGridArgs {
  ChaseArgs a;
  std::int64_t accesses;  // of all workers
};

template <int kChains, Through kThrough>
struct Chase : Stateless<ChaseGridArgs> {
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

struct BanksGridArgs {
  BanksArgs a;
  std::int64_t accesses;  // of each thread
};

// A word in shared memory is the offset of the next word in bytes.
template <class Word>
struct Banks : Stateless<BanksGridArgs, 2> {
  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&,
                                   unsigned char* shared) {
    constexpr auto kWords = static_cast<unsigned>(BanksArgs::kWords);
    constexpr unsigned kSize = sizeof(Word);
    const auto number = static_cast<unsigned>(thread.thread);
    if constexpr (kPhase == 0) {
      auto* words = reinterpret_cast<Word*>(shared);
      for (unsigned i = number; i < kWords; i += static_cast<unsigned>(thread.threads)) {
        words[i] = (i + static_cast<unsigned>(BanksArgs::kHop)) % kWords * kSize;
      }
    } else {
      // Warps begin in different banks.
      const auto first = number % kWarp * static_cast<unsigned>(g.a.stride) + number / kWarp;
      Word at = first % kWords * kSize;
      for (std::int64_t i = 0; i < g.accesses; ++i) {
        at = *reinterpret_cast<const Word*>(shared + at);
      }
      g.a.ends[thread.block * g.a.ends_stride + thread.thread] = at / kSize;
    }
  }
};

template <class Word>
void start_banks(const void* p, Range range, int threads, void* queue) {
  const BanksArgs& a = *static_cast<const BanksArgs*>(p);
  launch<Banks<Word>>({a, range.end - range.begin}, a.workers, threads,
                      BanksArgs::kWords * sizeof(Word), queue);
}

// clang-format off
#define MEMKERN_CHASE(chains)                                                           \
  {{"latency.chase", "simt", "uint64", "int64", nullptr, nullptr, 0, 0, #chains},       \
   start<chains, Through::AllCaches>},                                                  \
  {{"latency.chase", "l2", "uint64", "int64", nullptr, nullptr, 0, 0, #chains},         \
   start<chains, Through::L2>},

const TableRegistrar registrar({
    MEMKERN_CHASE(1) MEMKERN_CHASE(2) MEMKERN_CHASE(4) MEMKERN_CHASE(8) MEMKERN_CHASE(16)
}, 1);
// clang-format on

const TableRegistrar banks_registrar(
    {
        {{"latency.banks", "simt", "uint32", "", nullptr, nullptr}, start_banks<std::uint32_t>},
        {{"latency.banks", "simt", "uint64", "", nullptr, nullptr}, start_banks<std::uint64_t>},
    },
    kWarp);

}  // namespace
}  // namespace memkern::gpu
