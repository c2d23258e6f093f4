// Atomic memory operations by the processor's own instructions. A locked instruction has no wider
// form, so that there is one technique, built once, for every processor.
#include "kernels/amo.hpp"

#include <limits>
#include <type_traits>

#include "hwy/highway.h"

#if !MEMKERN_SIMD && !MEMKERN_AUTO
namespace memkern::MEMKERN_TECHNIQUE {
namespace {

// Plain is a load and a store, relaxed both: what the same accesses cost without being atomic.
enum class Primitive { Add, And, Or, Xor, Min, Max, Exchange, Cas, CasRetry, Plain };

// Words V of VAL, W of IDX. What an operation returns is used where its place in the pattern needs
// it, and with kUsed everywhere.
template <class V, class W, Primitive kPrimitive, int kOrder, bool kUsed>
class Threads {
 public:
  explicit Threads(const AmoArgs& args)
      : values_(static_cast<V*>(args.values)),
        index_(static_cast<W*>(args.index)),
        operand_(static_cast<V>(args.operand)) {}

  MEMKERN_INLINE std::int64_t place(std::int64_t i) { return static_cast<std::int64_t>(index_[i]); }
  MEMKERN_INLINE std::int64_t look(std::int64_t i) { return static_cast<std::int64_t>(same(i)); }
  MEMKERN_INLINE std::int64_t follow(std::int64_t i) {
    const W next = same(i);
    returned_ += next;
    return static_cast<std::int64_t>(next);
  }
  MEMKERN_INLINE void end(std::int64_t at) { end_ = static_cast<std::uint64_t>(at); }

  MEMKERN_INLINE void update(std::int64_t at) { use(sum(values_ + at, operand_)); }
  MEMKERN_INLINE V read(std::int64_t at) {
    if constexpr (kSwaps) return swap(values_ + at, [](V old) { return old; });
    return sum(values_ + at, operand_);
  }
  MEMKERN_INLINE void put(std::int64_t at, V v) {
    if constexpr (kSwaps) {
      use(swap(values_ + at, [v](V) { return v; }));
    } else {
      use(sum(values_ + at, v));
    }
  }

  void add_to(std::uint64_t* tally, Range range) const {
    count(applied_, tally[kApplied]);
    tally[kReturned] += returned_;
    tally[kAttempts] += attempts_;
    tally[kSuccesses] += successes_;
    tally[kEnd] = end_;
    tally[kIterations] += static_cast<std::uint64_t>(range.end - range.begin);
  }

 private:
  // Operands are added up by exclusive or where that is what they do to a value.
  MEMKERN_INLINE static void count(std::uint64_t v, std::uint64_t& all) {
    all = kPrimitive == Primitive::Xor ? all ^ v : all + v;
  }

  static constexpr bool kSwaps = kPrimitive == Primitive::Cas || kPrimitive == Primitive::CasRetry;
  static constexpr int kFailure = kOrder == __ATOMIC_ACQ_REL ? __ATOMIC_ACQUIRE : kOrder;

  MEMKERN_INLINE void use(V old) {
    if constexpr (kUsed) returned_ += static_cast<std::uint64_t>(old);
  }

  // Combines v with what is there, by the primitive, and returns what was there.
  MEMKERN_INLINE V sum(V* at, V v) {
    if constexpr (kSwaps) return swap(at, [v](V old) { return static_cast<V>(old + v); });
    count(static_cast<std::uint64_t>(v), applied_);
    return fetch(at, v);
  }

  // One of IDX, left as it is: indices are only ever read.
  MEMKERN_INLINE W same(std::int64_t i) {
    if constexpr (kSwaps) {
      return swap(index_ + i, [](W old) { return old; });
    } else if constexpr (kPrimitive == Primitive::Plain) {
      const W old = __atomic_load_n(index_ + i, __ATOMIC_RELAXED);
      __atomic_store_n(index_ + i, old, __ATOMIC_RELAXED);
      return old;
    } else {
      constexpr bool kOnes = kPrimitive == Primitive::And || kPrimitive == Primitive::Min;
      return fetch(index_ + i, kOnes ? std::numeric_limits<W>::max() : W{0});
    }
  }

  template <class T>
  MEMKERN_INLINE T fetch(T* at, T v) {
    if constexpr (kPrimitive == Primitive::Add && std::is_integral_v<T>) {
      return __atomic_fetch_add(at, v, kOrder);
    } else if constexpr (kPrimitive == Primitive::And) {
      return __atomic_fetch_and(at, v, kOrder);
    } else if constexpr (kPrimitive == Primitive::Or) {
      return __atomic_fetch_or(at, v, kOrder);
    } else if constexpr (kPrimitive == Primitive::Xor) {
      return __atomic_fetch_xor(at, v, kOrder);
    } else if constexpr (kPrimitive == Primitive::Exchange) {
      T old;
      __atomic_exchange(at, &v, &old, kOrder);
      return old;
    } else if constexpr (kPrimitive == Primitive::Plain) {
      T old;
      __atomic_load(at, &old, __ATOMIC_RELAXED);
      T now = static_cast<T>(old + v);
      __atomic_store(at, &now, __ATOMIC_RELAXED);
      return old;
    } else {
      // No instruction of most processors: swapped in, until nobody has come between.
      T old;
      T now;
      __atomic_load(at, &old, __ATOMIC_RELAXED);
      do {
        if constexpr (kPrimitive == Primitive::Add) {
          now = old + v;
        } else if constexpr (kPrimitive == Primitive::Min) {
          now = v < old ? v : old;
        } else {
          now = old < v ? v : old;
        }
      } while (!__atomic_compare_exchange(at, &old, &now, true, kOrder, __ATOMIC_RELAXED));
      return old;
    }
  }

  // Swaps in `next(expected)`; what is expected was loaded just before. Returns what was found.
  template <class T, class Next>
  MEMKERN_INLINE T swap(T* at, const Next& next) {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (true) {
      const T now = next(old);
      const T expected = old;
      const bool done = __atomic_compare_exchange_n(at, &old, now, false, kOrder, kFailure);
      ++attempts_;
      if (done) {
        ++successes_;
        // Of IDX and of what is swapped for itself this is nothing.
        applied_ += static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(expected);
      }
      if (done || kPrimitive == Primitive::Cas) return old;
    }
  }

  V* values_;
  W* index_;
  V operand_;
  std::uint64_t applied_ = 0;
  std::uint64_t returned_ = 0;
  std::uint64_t attempts_ = 0;
  std::uint64_t successes_ = 0;
  std::uint64_t end_ = 0;
};

template <class Pattern, class V, class W, Primitive kPrimitive, int kOrder, bool kUsed>
void body(const void* p, Range range, int worker) {
  const AmoArgs args = *static_cast<const AmoArgs*>(p);
  Threads<V, W, kPrimitive, kOrder, kUsed> words(args);
  Pattern::run(words, args, range, worker);
  words.add_to(args.tally + worker * args.tally_stride, range);
  keep(args.values);
}

// clang-format off
#define MEMKERN_FORM(name, Pattern, V, W, dtype, index, P, order, used, form)                     \
  {name, MEMKERN_VARIANT, dtype, index, body<amo::Pattern, V, W, Primitive::P, order, used>,      \
   nullptr, 0, 0, 0, form},
#define MEMKERN_USED(primitive, P, ...)                                                           \
  MEMKERN_FORM(__VA_ARGS__, P, __ATOMIC_RELAXED, true, primitive "/relaxed/used")                 \
  MEMKERN_FORM(__VA_ARGS__, P, __ATOMIC_ACQ_REL, true, primitive "/acq_rel/used")                 \
  MEMKERN_FORM(__VA_ARGS__, P, __ATOMIC_SEQ_CST, true, primitive "/seq_cst/used")
#define MEMKERN_ORDERS(primitive, P, ...)                                                         \
  MEMKERN_USED(primitive, P, __VA_ARGS__)                                                         \
  MEMKERN_FORM(__VA_ARGS__, P, __ATOMIC_RELAXED, false, primitive "/relaxed/unused")              \
  MEMKERN_FORM(__VA_ARGS__, P, __ATOMIC_ACQ_REL, false, primitive "/acq_rel/unused")              \
  MEMKERN_FORM(__VA_ARGS__, P, __ATOMIC_SEQ_CST, false, primitive "/seq_cst/unused")
// All primitives that leave an index as it is with some operand.
#define MEMKERN_EVERY(X, ...)                                                                     \
  X("add", Add, __VA_ARGS__) X("and", And, __VA_ARGS__) X("or", Or, __VA_ARGS__)                  \
  X("xor", Xor, __VA_ARGS__) X("min", Min, __VA_ARGS__) X("max", Max, __VA_ARGS__)                \
  MEMKERN_USED("cas", Cas, __VA_ARGS__) MEMKERN_USED("cas-retry", CasRetry, __VA_ARGS__)          \
  MEMKERN_FORM(__VA_ARGS__, Plain, __ATOMIC_RELAXED, true, "plain/relaxed/used")
#define MEMKERN_CHASE(name, Pattern, V, W, dtype, index)                                          \
  MEMKERN_EVERY(MEMKERN_USED, name, Pattern, V, W, dtype, index)
#define MEMKERN_BOTH(name, Pattern, V, W, dtype, index)                                           \
  MEMKERN_EVERY(MEMKERN_ORDERS, name, Pattern, V, W, dtype, index)                                \
  MEMKERN_FORM(name, Pattern, V, W, dtype, index, Plain, __ATOMIC_RELAXED, false,                 \
               "plain/relaxed/unused")
#define MEMKERN_VALUES(name, Pattern, V, W, dtype, index)                                         \
  MEMKERN_BOTH(name, Pattern, V, W, dtype, index)                                                 \
  MEMKERN_ORDERS("exchange", Exchange, name, Pattern, V, W, dtype, index)
#define MEMKERN_FLOAT(name, Pattern, V, W, dtype, index)                                          \
  MEMKERN_ORDERS("add", Add, name, Pattern, V, W, dtype, index)                                   \
  MEMKERN_FORM(name, Pattern, V, W, dtype, index, Plain, __ATOMIC_RELAXED, true,                  \
               "plain/relaxed/used")                                                              \
  MEMKERN_FORM(name, Pattern, V, W, dtype, index, Plain, __ATOMIC_RELAXED, false,                 \
               "plain/relaxed/unused")
#define MEMKERN_WORDS(X, name, Pattern, index64, index32)                                         \
  X(name, Pattern, std::uint64_t, std::uint64_t, "uint64", index64)                               \
  X(name, Pattern, std::uint32_t, std::uint32_t, "uint32", index32)
#define MEMKERN_NUMBERS(name, Pattern, index64, index32)                                          \
  MEMKERN_WORDS(MEMKERN_VALUES, name, Pattern, index64, index32)                                  \
  MEMKERN_FLOAT(name, Pattern, double, std::uint64_t, "float64", index64)                         \
  MEMKERN_FLOAT(name, Pattern, float, std::uint32_t, "float32", index32)

constexpr Entry kEntries[] = {
    MEMKERN_NUMBERS("amo.rand", Rand, "int64", "int32")
    MEMKERN_NUMBERS("amo.stride1", Strided, "", "")
    MEMKERN_NUMBERS("amo.striden", Strided, "", "")
    MEMKERN_NUMBERS("amo.central", Central, "", "")
    MEMKERN_WORDS(MEMKERN_CHASE, "amo.ptrchase", Chase, "int64", "int32")
    MEMKERN_WORDS(MEMKERN_BOTH, "amo.scatter", Scatter, "int64", "int32")
    MEMKERN_WORDS(MEMKERN_BOTH, "amo.gather", Gather, "int64", "int32")
    MEMKERN_WORDS(MEMKERN_BOTH, "amo.sg", ScatterGather, "int64", "int32")
};
// clang-format on

const TableRegistrar registrar(HWY_STATIC_TARGET, kEntries, sizeof kEntries / sizeof kEntries[0]);

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE
#endif
