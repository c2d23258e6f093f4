// Dependent loads, alone and with background traffic, and a line that two workers write in turn.
// Only the traffic is vectorised.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/latency/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include <type_traits>
#include <utility>

#include "families/latency/args.hpp"
#include "simd/nontemporal.hpp"
#include "simd/stream-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

MEMKERN_INLINE const std::byte* next_of(const std::byte* line) {
  return *reinterpret_cast<const std::byte* const*>(line);
}

// Advances all chains by `steps` lines. They are written out one by one, so that each has a
// register if there are enough.
template <std::size_t... kChain>
MEMKERN_INLINE void follow(Chain* chains, std::int64_t steps, std::index_sequence<kChain...>) {
  const std::byte* at[] = {chains[kChain].line...};
  for (std::int64_t i = 0; i < steps; ++i) {
    ((at[kChain] = next_of(at[kChain])), ...);
  }
  ((chains[kChain].line = at[kChain]), ...);
}

template <int kChains>
MEMKERN_INLINE void chase_part(const ChaseArgs& args, Range range, int worker) {
  Chain* chains = args.chains + worker * ChaseArgs::kMaxChains;
  const std::int64_t accesses = range.end - range.begin;
  follow(chains, accesses / kChains, std::make_index_sequence<kChains>());
  // Whole invocations leave no rest.
  for (std::int64_t j = 0; j < accesses % kChains; ++j) chains[j].line = next_of(chains[j].line);
  std::uint64_t* ends = args.ends + worker * args.ends_stride;
  for (int j = 0; j < kChains; ++j) {
    ends[j] = static_cast<std::uint64_t>(chains[j].line - args.ring);
  }
  ends[ChaseArgs::kAccesses] += static_cast<std::uint64_t>(accesses);
}

template <int kChains>
void chase(const void* p, Range range, int worker) {
  chase_part<kChains>(*static_cast<const ChaseArgs*>(p), range, worker);
}

// The words of whole lines, one or a vector at a time. Stores are non-temporal on x86, and on Arm
// where the compiler has such stores; elsewhere they are plain, and the cache may first read the
// line, which is not counted.
#if MEMKERN_SIMD
struct Lines {
  // At most 64 bytes, of which every line is a multiple.
  using Tag = hn::CappedTag<std::uint64_t, 8>;
  using Words = hn::Vec<Tag>;
  MEMKERN_INLINE static Words zero() { return hn::Zero(Tag()); }
  MEMKERN_INLINE static std::int64_t step_B() {
    return static_cast<std::int64_t>(hn::Lanes(Tag()) * sizeof(std::uint64_t));
  }
  MEMKERN_INLINE static Words add(Words sum, const std::byte* from) {
    return hn::Add(sum, hn::Load(Tag(), reinterpret_cast<const std::uint64_t*>(from)));
  }
  MEMKERN_INLINE static void store(std::byte* to, std::uint64_t word) {
    stream(hn::Set(Tag(), word), Tag(), reinterpret_cast<std::uint64_t*>(to));
  }
  MEMKERN_INLINE static std::uint64_t total(Words sum) {
    return hn::GetLane(hn::SumOfLanes(Tag(), sum));
  }
};
#else
struct Lines {
  using Words = std::uint64_t;
  MEMKERN_INLINE static Words zero() { return 0; }
  MEMKERN_INLINE static std::int64_t step_B() { return sizeof(std::uint64_t); }
  MEMKERN_INLINE static Words add(Words sum, const std::byte* from) {
    return sum + *reinterpret_cast<const std::uint64_t*>(from);
  }
  MEMKERN_INLINE static void store(std::byte* to, std::uint64_t word) {
    store_nontemporal(reinterpret_cast<std::uint64_t*>(to), word);
  }
  MEMKERN_INLINE static std::uint64_t total(Words sum) { return sum; }
};
#endif

// Groups of loaded and stored lines, each followed by a pause, until worker 0 has finished.
MEMKERN_INLINE void generate(const LoadedArgs& args, int worker) {
  const std::byte* source = args.source + worker * args.row_stride_B;
  std::byte* target = args.target + worker * args.row_stride_B;
  std::uint64_t* tally = args.tally + worker * args.tally_stride;
  const std::int64_t load_B = args.loads * args.line_B;
  const std::int64_t store_B = (LoadedArgs::kGroup - args.loads) * args.line_B;
  const std::int64_t row_B = args.lines * args.line_B;
  std::int64_t* places = args.places + std::int64_t{2} * worker;
  std::int64_t from = places[0];
  std::int64_t to = places[1];
  const auto loads = static_cast<std::uint64_t>(args.loads);
  const std::uint64_t stores = LoadedArgs::kGroup - loads;
  std::uint64_t groups = 0;
  // The number of lines stored so far is the word of the next ones, which identifies them.
  std::uint64_t stored = tally[LoadedArgs::kStored];
  std::uint64_t delay = 1;
  auto sum = Lines::zero();
  while (!args.finished->load(std::memory_order_acquire)) {
    for (std::int64_t b = 0; b < load_B; b += Lines::step_B()) {
      sum = Lines::add(sum, source + from + b);
    }
    for (std::int64_t b = 0; b < store_B; b += Lines::step_B()) {
      Lines::store(target + to + b, stored);
    }
    // A group that would not fit starts at the beginning.
    from = from + 2 * load_B > row_B ? 0 : from + load_B;
    to = to + 2 * store_B > row_B ? 0 : to + store_B;
    ++groups;
    stored += stores;
    for (std::int64_t k = 0; k < args.pause; ++k) {
      delay *= 3;
      asm volatile("" : "+r"(delay));
    }
  }
  store_fence();
  places[0] = from;
  places[1] = to;
  tally[LoadedArgs::kLoaded] += groups * loads;
  tally[LoadedArgs::kStored] = stored;
  tally[LoadedArgs::kSum] += Lines::total(sum);
  tally[LoadedArgs::kFrom] = static_cast<std::uint64_t>(from / args.line_B);
  tally[LoadedArgs::kTo] = static_cast<std::uint64_t>(to / args.line_B);
}

void loaded(const void* p, Range range, int worker) {
  const LoadedArgs& args = *static_cast<const LoadedArgs*>(p);
  if (worker == 0) {
    chase_part<1>(args.chase, range, worker);
    args.finished->store(true, std::memory_order_release);
  } else {
    generate(args, worker);
  }
}

void loaded_again(const void* p, int) {
  static_cast<const LoadedArgs*>(p)->finished->store(false, std::memory_order_release);
}

#if !MEMKERN_SIMD && !MEMKERN_AUTO && HWY_TARGET == HWY_STATIC_TARGET
// Worker 0 writes odd numbers, worker 1 even ones. In one line both write the same word; a
// compare-and-swap acquires the line for writing at once, a load acquires it for reading first.
template <bool kSwap>
void ping_pong(const void* p, Range, int worker) {
  const PingPongArgs& args = *static_cast<const PingPongArgs*>(p);
  if (worker > 1) return;
  std::uint64_t* own = args.words[worker];
  std::uint64_t* others = args.words[1 - worker];
  std::uint64_t* tally = args.tally + worker * args.tally_stride;
  std::uint64_t* next = args.next + worker * PingPongArgs::kNextStride;
  std::uint64_t turn = *next;
  std::uint64_t wrong = 0;
  for (std::int64_t i = 0; i < args.turns; ++i, turn += 2) {
    std::uint64_t seen = turn;
    if constexpr (kSwap) {
      while (!__atomic_compare_exchange_n(others, &seen, turn + 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE)) {
        if (seen > turn) break;
        seen = turn;
      }
    } else {
      do {
        seen = __atomic_load_n(others, __ATOMIC_ACQUIRE);
      } while (seen < turn);
      __atomic_store_n(own, turn + 1, __ATOMIC_RELEASE);
    }
    wrong += seen != turn ? 1U : 0U;
  }
  *next = turn;
  tally[PingPongArgs::kTurns] += static_cast<std::uint64_t>(args.turns);
  tally[PingPongArgs::kWrong] += wrong;
}
#endif

// clang-format off
#define MEMKERN_CHASE(n) \
  {"latency.chase", MEMKERN_VARIANT, "uint64", "int64", chase<n>, nullptr, 0, 0, #n},

constexpr Entry kEntries[] = {
#if !MEMKERN_SIMD && !MEMKERN_AUTO && HWY_TARGET == HWY_STATIC_TARGET
    MEMKERN_CHASE(1) MEMKERN_CHASE(2) MEMKERN_CHASE(3) MEMKERN_CHASE(4) MEMKERN_CHASE(5)
    MEMKERN_CHASE(6) MEMKERN_CHASE(7) MEMKERN_CHASE(8) MEMKERN_CHASE(9) MEMKERN_CHASE(10)
    MEMKERN_CHASE(11) MEMKERN_CHASE(12) MEMKERN_CHASE(13) MEMKERN_CHASE(14) MEMKERN_CHASE(15)
    MEMKERN_CHASE(16) MEMKERN_CHASE(18) MEMKERN_CHASE(20) MEMKERN_CHASE(22) MEMKERN_CHASE(24)
    MEMKERN_CHASE(26) MEMKERN_CHASE(28) MEMKERN_CHASE(30) MEMKERN_CHASE(32)
    {"latency.ping_pong", MEMKERN_VARIANT, "uint64", "", ping_pong<false>, nullptr, 0, 0, "load"},
    {"latency.ping_pong", MEMKERN_VARIANT, "uint64", "", ping_pong<true>, nullptr, 0, 0, "swap"},
#endif
    {"latency.loaded", MEMKERN_VARIANT, "uint64", "int64", loaded, loaded_again},
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
