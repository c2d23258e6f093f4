// Atomic memory operations by the threads of a GPU, each of which is a worker.
#pragma once

#include <cuda_runtime.h>  // declares __host__ and __device__ for HIP

#include "families/amo/patterns.hpp"

#include <type_traits>

#include "gpu/grid.hpp"
#include "gpu/warp.hpp"

namespace memkern::gpu {
namespace {

enum class Order { Relaxed, AcqRel, SeqCst };
enum class Scope { Device, System };  // of the threads that agree on the order of updates

constexpr int kThreads = 256;

// The operations. Without a GPU, one thread runs at a time, so they need not be atomic, and each
// thread is a warp.

#ifdef __CUDACC__

// The type that CUDA's atomic functions take.
template <class T>
using Word = std::conditional_t<std::is_same_v<T, std::uint64_t>, unsigned long long, T>;

// C++'s memory orders in PTX. CUDA's library has them as well, but its pointers may point to shared
// memory, which it checks at run time. Relaxed operations between two fences would order more than
// required and take longer.
#define MEMKERN_ATOM(order, operation, r, ...) \
  asm volatile(order ".gpu.global." operation : "=" r(old) : "l"(at), __VA_ARGS__ : "memory")
#define MEMKERN_IN_ORDER(...)                                \
  if constexpr (kOrder == Order::AcqRel) {                   \
    MEMKERN_ATOM("atom.acq_rel", __VA_ARGS__);               \
  } else {                                                   \
    MEMKERN_ATOM("fence.sc.gpu; atom.acquire", __VA_ARGS__); \
  }

template <Order kOrder, class T>
__device__ __forceinline__ T add_in_order(T* generic, T v) {
  const std::size_t at = __cvta_generic_to_global(generic);
  T old;
  if constexpr (std::is_same_v<T, double>) {
    MEMKERN_IN_ORDER("add.f64 %0, [%1], %2;", "d", "d"(v))
  } else if constexpr (std::is_same_v<T, float>) {
    MEMKERN_IN_ORDER("add.f32 %0, [%1], %2;", "f", "f"(v))
  } else if constexpr (sizeof(T) == 8) {
    MEMKERN_IN_ORDER("add.u64 %0, [%1], %2;", "l", "l"(v))
  } else {
    MEMKERN_IN_ORDER("add.u32 %0, [%1], %2;", "r", "r"(v))
  }
  return old;
}

template <Order kOrder, class T>
__device__ __forceinline__ T swap_in_order(T* generic, T expected, T now) {
  const std::size_t at = __cvta_generic_to_global(generic);
  T old;
  if constexpr (sizeof(T) == 8) {
    MEMKERN_IN_ORDER("cas.b64 %0, [%1], %2, %3;", "l", "l"(expected), "l"(now))
  } else {
    MEMKERN_IN_ORDER("cas.b32 %0, [%1], %2, %3;", "r", "r"(expected), "r"(now))
  }
  return old;
}

#endif

template <Primitive primitive, Order kOrder, Scope kScope>
struct Atomics {
  static constexpr Primitive kPrimitive = primitive;
#ifdef __HIPCC__
  static constexpr int kMemoryOrder = kOrder == Order::Relaxed  ? __ATOMIC_RELAXED
                                      : kOrder == Order::AcqRel ? __ATOMIC_ACQ_REL
                                                                : __ATOMIC_SEQ_CST;
  static constexpr int kMemoryScope =
      kScope == Scope::System ? __HIP_MEMORY_SCOPE_SYSTEM : __HIP_MEMORY_SCOPE_AGENT;
#endif

  // Volatile accesses are relaxed and not optimised away.
  template <class T>
  MEMKERN_ANYWHERE static T load(const T* at) {
    return *static_cast<const volatile T*>(at);
  }

  template <class T>
  MEMKERN_ANYWHERE static bool swap(T* at, T& expected, T now) {
    const T wanted = expected;
    expected = compare_and_swap(at, wanted, now);
    return expected == wanted;
  }

  template <class T>
  MEMKERN_ANYWHERE static T fetch(T* at, T v) {
    if constexpr (kPrimitive == Primitive::Plain) {
      const T old = load(at);
      *static_cast<volatile T*>(at) = static_cast<T>(old + v);
      return old;
    }
#ifdef __CUDA_ARCH__
    auto* word = reinterpret_cast<Word<T>*>(at);
    const auto operand = static_cast<Word<T>>(v);
    constexpr bool kSystem = kScope == Scope::System;
    if constexpr (kPrimitive == Primitive::Add && kOrder != Order::Relaxed) {
      return add_in_order<kOrder>(at, v);
    } else if constexpr (kPrimitive == Primitive::Add) {
      return kSystem ? atomicAdd_system(word, operand) : atomicAdd(word, operand);
    } else if constexpr (kPrimitive == Primitive::And) {
      return atomicAnd(word, operand);
    } else if constexpr (kPrimitive == Primitive::Or) {
      return atomicOr(word, operand);
    } else if constexpr (kPrimitive == Primitive::Xor) {
      return atomicXor(word, operand);
    } else if constexpr (kPrimitive == Primitive::Min) {
      return atomicMin(word, operand);
    } else if constexpr (kPrimitive == Primitive::Max) {
      return atomicMax(word, operand);
    } else if constexpr (kPrimitive == Primitive::Exchange) {
      return kSystem ? atomicExch_system(word, operand) : atomicExch(word, operand);
    }
#elif defined(MEMKERN_ON_DEVICE)
    if constexpr (kPrimitive == Primitive::Add) {
      return __hip_atomic_fetch_add(at, v, kMemoryOrder, kMemoryScope);
    } else if constexpr (kPrimitive == Primitive::And) {
      return __hip_atomic_fetch_and(at, v, kMemoryOrder, kMemoryScope);
    } else if constexpr (kPrimitive == Primitive::Or) {
      return __hip_atomic_fetch_or(at, v, kMemoryOrder, kMemoryScope);
    } else if constexpr (kPrimitive == Primitive::Xor) {
      return __hip_atomic_fetch_xor(at, v, kMemoryOrder, kMemoryScope);
    } else if constexpr (kPrimitive == Primitive::Min) {
      return __hip_atomic_fetch_min(at, v, kMemoryOrder, kMemoryScope);
    } else if constexpr (kPrimitive == Primitive::Max) {
      return __hip_atomic_fetch_max(at, v, kMemoryOrder, kMemoryScope);
    } else if constexpr (kPrimitive == Primitive::Exchange) {
      return __hip_atomic_exchange(at, v, kMemoryOrder, kMemoryScope);
    }
#else
    const T old = *at;
    if constexpr (kPrimitive == Primitive::Add) *at = old + v;
    if constexpr (kPrimitive == Primitive::And) *at = old & v;
    if constexpr (kPrimitive == Primitive::Or) *at = old | v;
    if constexpr (kPrimitive == Primitive::Xor) *at = old ^ v;
    if constexpr (kPrimitive == Primitive::Min) *at = v < old ? v : old;
    if constexpr (kPrimitive == Primitive::Max) *at = old < v ? v : old;
    if constexpr (kPrimitive == Primitive::Exchange) *at = v;
    return old;
#endif
  }

 private:
  template <class T>
  MEMKERN_ANYWHERE static T compare_and_swap(T* at, T expected, T now) {
#ifdef __CUDA_ARCH__
    auto* word = reinterpret_cast<Word<T>*>(at);
    if constexpr (kOrder != Order::Relaxed) {
      return swap_in_order<kOrder>(at, expected, now);
    } else if constexpr (kScope == Scope::System) {
      return atomicCAS_system(word, Word<T>{expected}, Word<T>{now});
    } else {
      return atomicCAS(word, Word<T>{expected}, Word<T>{now});
    }
#elif defined(MEMKERN_ON_DEVICE)
    constexpr int kFailure = kOrder == Order::AcqRel ? __ATOMIC_ACQUIRE : kMemoryOrder;
    __hip_atomic_compare_exchange_strong(at, &expected, now, kMemoryOrder, kFailure, kMemoryScope);
    return expected;
#else
    const T old = *at;
    if (old == expected) *at = now;
    return old;
#endif
  }
};

template <Primitive kPrimitive>
using Simple = Atomics<kPrimitive, Order::Relaxed, Scope::Device>;

// The lanes of a warp that access the same word, and the rank of the thread among them.
struct Lanes {
  unsigned mask;
  unsigned count;
  unsigned rank;
};
MEMKERN_ANYWHERE Lanes lanes_at(int lane, std::int64_t word) {
  const unsigned mask = lanes_with(active_lanes(), word);
  const unsigned below = mask & ((1U << lane) - 1);
  return {mask, count_of(mask), count_of(below)};
}
// The value of the first of these lanes.
template <class T>
MEMKERN_ANYWHERE T of_first(const Lanes& lanes, T v) {
  return from_lane(lanes.mask, v, first_of(lanes.mask));
}

struct AmoGridArgs {
  AmoArgs a;
  Range range;
  // Workers have consecutive parts of `share` iterations, the first `longer` workers one more.
  std::int64_t share;
  std::int64_t longer;
  // The operand that does not change a word. It must be unknown to the compiler, which could
  // otherwise replace one primitive by another or remove the update.
  std::uint64_t neutral;
};

MEMKERN_ANYWHERE Range part_of(const AmoGridArgs& g, std::int64_t worker) {
  const std::int64_t longer = worker < g.longer ? worker : g.longer;
  const std::int64_t begin = g.range.begin + worker * g.share + longer;
  return {begin, begin + g.share + (worker < g.longer ? 1 : 0)};
}

// Lanes of a warp that update the same word combine their operands: one lane updates it for all.
template <class V, bool kUsed>
class WarpWords : public Words<Simple<Primitive::Add>, V, V, kUsed> {
 public:
  using Words<Simple<Primitive::Add>, V, V, kUsed>::Words;

  MEMKERN_ANYWHERE void update(std::int64_t at) {
    const Lanes lanes = lanes_at(this_lane(), at);
    const V operand = this->operand_;
    this->count(operand, this->applied_);
    V old = 0;
    if (lanes.rank == 0) {
      old =
          Simple<Primitive::Add>::fetch(this->values_ + at, static_cast<V>(operand * lanes.count));
    }
    if constexpr (kUsed) this->use(static_cast<V>(of_first(lanes, old) + operand * lanes.rank));
  }
};

// Assignment of iterations to workers: one contiguous part each, or cyclic, so that neighbouring
// threads access neighbouring words.
enum class Assignment { Blocked, Cyclic };
template <class Pattern, Assignment kAssignment, class Carrier>
MEMKERN_ANYWHERE void work(const AmoGridArgs& g, const AmoArgs& a, const Thread& thread,
                           Carrier words) {
  const std::int64_t worker = thread.index();
  if (worker >= a.workers) return;
  const Range part = part_of(g, worker);
  std::uint64_t* tally = a.tally + worker * a.tally_stride;
  // The same for both assignments. Counted before the loop, which saves registers in it.
  tally[kIterations] += static_cast<std::uint64_t>(part.end - part.begin);
  if constexpr (kAssignment == Assignment::Blocked) {
    Pattern::run(words, a, part, static_cast<int>(worker));
  } else {
    for (std::int64_t i = g.range.begin + worker; i < g.range.end; i += a.workers) {
      Pattern::run(words, a, {i, i + 1}, static_cast<int>(worker));
    }
  }
  words.add_to(tally);
}

template <class Carrier>
inline constexpr bool kCombines = false;
template <class V, bool kUsed>
inline constexpr bool kCombines<WarpWords<V, kUsed>> = true;

template <class Pattern, Assignment kAssignment, class Carrier>
struct Direct : Stateless<AmoGridArgs> {
  using Warps = std::bool_constant<kCombines<Carrier>>;
  static constexpr Primitive kPrimitive = Carrier::kPrimitive;

  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    work<Pattern, kAssignment>(g, g.a, thread, Carrier(g.a, g.neutral));
  }
  static std::int64_t shared_B(const AmoArgs&) { return 0; }
};

// Number of hot words whose updates a block collects in shared memory: as many as fit there.
template <class V>
MEMKERN_ANYWHERE std::int64_t staged_words(const AmoArgs& a) {
  constexpr std::int64_t kMaxWords = kMaxShared_B / std::int64_t{sizeof(V)};
  return a.hot < kMaxWords ? a.hot : kMaxWords;
}

template <class V, Primitive kPrimitive>
class StagedWords : public Words<Simple<kPrimitive>, V, V, false> {
 public:
  MEMKERN_ANYWHERE StagedWords(const AmoGridArgs& g, V* stage)
      : Words<Simple<kPrimitive>, V, V, false>(g.a, g.neutral),
        stage_(stage),
        staged_(staged_words<V>(g.a)),
        stride_(g.a.stride) {}

  MEMKERN_ANYWHERE void update(std::int64_t word) {
    if (word < staged_) {
      this->combine(stage_ + word, this->operand_);
    } else {
      this->combine(this->values_ + word * stride_, this->operand_);
    }
  }

 private:
  V* stage_;
  std::int64_t staged_;
  std::int64_t stride_;
};

template <class V, Primitive primitive>
struct Gathered : Stateless<AmoGridArgs, 3> {
  static constexpr Primitive kPrimitive = primitive;

  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&,
                                   unsigned char* shared) {
    V* stage = reinterpret_cast<V*>(shared);
    if constexpr (kPhase == 1) {
      AmoArgs contiguous = g.a;
      contiguous.stride = 1;
      work<amo::Central, Assignment::Blocked>(g, contiguous, thread,
                                              StagedWords<V, primitive>(g, stage));
    } else {
      const auto neutral = static_cast<V>(g.neutral);
      for (std::int64_t word = thread.thread; word < staged_words<V>(g.a); word += thread.threads) {
        if constexpr (kPhase == 0) {
          stage[word] = neutral;
        } else if (stage[word] != neutral) {
          V* values = static_cast<V*>(g.a.values);
          Simple<primitive>::fetch(values + word * g.a.stride, stage[word]);
        }
      }
    }
  }
  static std::int64_t shared_B(const AmoArgs& a) {
    return staged_words<V>(a) * std::int64_t{sizeof(V)};
  }
};

template <class K>
void start(const void* p, Range range, int threads, void* queue) {
  const AmoArgs& a = *static_cast<const AmoArgs*>(p);
  const std::int64_t count = range.end - range.begin;
  launch<K>({a, range, count / a.workers, count % a.workers, neutral_of(K::kPrimitive)},
            blocks_for(a.workers, threads), threads, static_cast<std::size_t>(K::shared_B(a)),
            queue);
}

}  // namespace
}  // namespace memkern::gpu
