// Atomic memory operations by the processor's instructions. Atomic instructions have no vector
// form, so that there is one technique, built once, for the baseline.
#include "families/amo/patterns.hpp"

#include <type_traits>

#include "engine/registry.hpp"
#include "hwy/highway.h"

#if !MEMKERN_SIMD && !MEMKERN_AUTO
namespace memkern::MEMKERN_TECHNIQUE {
namespace {

template <Primitive primitive, int kOrder>
struct Atomics {
  static constexpr Primitive kPrimitive = primitive;

  template <class T>
  MEMKERN_INLINE static T load(const T* at) {
    T value;
    __atomic_load(at, &value, __ATOMIC_RELAXED);
    return value;
  }

  template <class T>
  MEMKERN_INLINE static void store(T* at, T value) {
    __atomic_store(at, &value, __ATOMIC_RELAXED);
  }

  template <class T>
  MEMKERN_INLINE static bool swap(T* at, T& expected, T now) {
    constexpr int kFailure = kOrder == __ATOMIC_ACQ_REL ? __ATOMIC_ACQUIRE : kOrder;
    return __atomic_compare_exchange_n(at, &expected, now, false, kOrder, kFailure);
  }

  template <class T>
  MEMKERN_INLINE static T fetch(T* at, T v) {
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
      const T old = load(at);
      T now = static_cast<T>(old + v);
      __atomic_store(at, &now, __ATOMIC_RELAXED);
      return old;
    } else {
      // Most processors have no such instruction: compare and swap until no other worker
      // interferes.
      T old = load(at);
      T now;
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
};

template <class Pattern, class V, class W, Primitive kPrimitive, int kOrder, bool kUsed>
void body(const void* p, Range range, int worker) {
  const AmoArgs args = *static_cast<const AmoArgs*>(p);
  Words<Atomics<kPrimitive, kOrder>, V, W, kUsed> words(args, neutral_of(kPrimitive));
  Pattern::run(words, args, range, worker);
  std::uint64_t* tally = args.tally + worker * args.tally_stride;
  words.add_to(tally);
  tally[kIterations] += static_cast<std::uint64_t>(range.end - range.begin);
  do_not_optimize(args.values);
}

// clang-format off
#define MEMKERN_ENTRY(name, Pattern, V, W, dtype, index, P, order, used, template_variant)   \
  {name, MEMKERN_VARIANT, dtype, index, body<amo::Pattern, V, W, Primitive::P, order, used>, \
   nullptr, 0, 0, template_variant},
#define MEMKERN_USED(primitive, P, ...)                                                           \
  MEMKERN_ENTRY(__VA_ARGS__, P, __ATOMIC_RELAXED, true, primitive "/relaxed/used")                 \
  MEMKERN_ENTRY(__VA_ARGS__, P, __ATOMIC_ACQ_REL, true, primitive "/acq_rel/used")                 \
  MEMKERN_ENTRY(__VA_ARGS__, P, __ATOMIC_SEQ_CST, true, primitive "/seq_cst/used")
#define MEMKERN_ORDERS(primitive, P, ...)                                                         \
  MEMKERN_USED(primitive, P, __VA_ARGS__)                                                         \
  MEMKERN_ENTRY(__VA_ARGS__, P, __ATOMIC_RELAXED, false, primitive "/relaxed/unused")              \
  MEMKERN_ENTRY(__VA_ARGS__, P, __ATOMIC_ACQ_REL, false, primitive "/acq_rel/unused")              \
  MEMKERN_ENTRY(__VA_ARGS__, P, __ATOMIC_SEQ_CST, false, primitive "/seq_cst/unused")
// All primitives with an operand that does not change an index.
#define MEMKERN_EVERY(X, ...)                                                                     \
  X("add", Add, __VA_ARGS__) X("and", And, __VA_ARGS__) X("or", Or, __VA_ARGS__)                  \
  X("xor", Xor, __VA_ARGS__) X("min", Min, __VA_ARGS__) X("max", Max, __VA_ARGS__)                \
  MEMKERN_USED("cas", Cas, __VA_ARGS__) MEMKERN_USED("cas-retry", CasRetry, __VA_ARGS__)          \
  MEMKERN_USED("cas-target", CasTarget, __VA_ARGS__)                                              \
  MEMKERN_ENTRY(__VA_ARGS__, Plain, __ATOMIC_RELAXED, true, "plain/relaxed/used")
#define MEMKERN_CHASE(name, Pattern, V, W, dtype, index)                                          \
  MEMKERN_EVERY(MEMKERN_USED, name, Pattern, V, W, dtype, index)
#define MEMKERN_BOTH(name, Pattern, V, W, dtype, index)                                           \
  MEMKERN_EVERY(MEMKERN_ORDERS, name, Pattern, V, W, dtype, index)                                \
  MEMKERN_ENTRY(name, Pattern, V, W, dtype, index, Plain, __ATOMIC_RELAXED, false,                 \
               "plain/relaxed/unused")
#define MEMKERN_VALUES(name, Pattern, V, W, dtype, index)                                         \
  MEMKERN_BOTH(name, Pattern, V, W, dtype, index)                                                 \
  MEMKERN_ORDERS("exchange", Exchange, name, Pattern, V, W, dtype, index)
#define MEMKERN_FLOAT(name, Pattern, V, W, dtype, index)                                          \
  MEMKERN_ORDERS("add", Add, name, Pattern, V, W, dtype, index)                                   \
  MEMKERN_ENTRY(name, Pattern, V, W, dtype, index, Plain, __ATOMIC_RELAXED, true,                  \
               "plain/relaxed/used")                                                              \
  MEMKERN_ENTRY(name, Pattern, V, W, dtype, index, Plain, __ATOMIC_RELAXED, false,                 \
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
