// The table of atomic memory operations on a GPU.
#include "families/amo/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
#define MEMKERN_ROW(variant, template_variant, name, dtype, index, ...) \
  {{name, variant, dtype, index, nullptr, nullptr, 0, 0, template_variant}, start<__VA_ARGS__>},

// A primitive of a variant, for one kernel: its name, pattern and types.
#define MEMKERN_ENTRY(used, returns, variant, How, Where, primitive, P, order, O, name, Pattern,   \
                     V, W, dtype, index)                                                          \
  MEMKERN_ROW(variant, primitive "/" order "/" returns, name, dtype, index,                       \
              Direct<amo::Pattern, Assignment::How,                                                     \
                     Words<Atomics<Primitive::P, Order::O, Scope::Where>, V, W, used>>)
#define MEMKERN_USED(...) MEMKERN_ENTRY(true, "used", __VA_ARGS__)
#define MEMKERN_BOTH(...) MEMKERN_USED(__VA_ARGS__) MEMKERN_ENTRY(false, "unused", __VA_ARGS__)
#define MEMKERN_ORDERS(X, primitive, P, ...)                                                      \
  X("device", Blocked, Device, primitive, P, "relaxed", Relaxed, __VA_ARGS__)                       \
  X("device", Blocked, Device, primitive, P, "acq_rel", AcqRel, __VA_ARGS__)                        \
  X("device", Blocked, Device, primitive, P, "seq_cst", SeqCst, __VA_ARGS__)

// All primitives with an operand that does not change an index.
#define MEMKERN_EVERY(X, ...)                                                                     \
  MEMKERN_ORDERS(X, "add", Add, __VA_ARGS__)                                                      \
  X("device", Blocked, Device, "and", And, "relaxed", Relaxed, __VA_ARGS__)                         \
  X("device", Blocked, Device, "or", Or, "relaxed", Relaxed, __VA_ARGS__)                           \
  X("device", Blocked, Device, "xor", Xor, "relaxed", Relaxed, __VA_ARGS__)                         \
  X("device", Blocked, Device, "min", Min, "relaxed", Relaxed, __VA_ARGS__)                         \
  X("device", Blocked, Device, "max", Max, "relaxed", Relaxed, __VA_ARGS__)                         \
  X("device", Blocked, Device, "plain", Plain, "relaxed", Relaxed, __VA_ARGS__)                     \
  MEMKERN_ORDERS(MEMKERN_USED, "cas", Cas, __VA_ARGS__)                                           \
  MEMKERN_ORDERS(MEMKERN_USED, "cas-retry", CasRetry, __VA_ARGS__)                                \
  X("system", Blocked, System, "add", Add, "relaxed", Relaxed, __VA_ARGS__)                         \
  MEMKERN_USED("system", Blocked, System, "cas", Cas, "relaxed", Relaxed, __VA_ARGS__)
#define MEMKERN_CHASE(...) MEMKERN_EVERY(MEMKERN_USED, __VA_ARGS__)
#define MEMKERN_WORDS(...) MEMKERN_EVERY(MEMKERN_BOTH, __VA_ARGS__)
#define MEMKERN_VALUES(...)                                                                       \
  MEMKERN_WORDS(__VA_ARGS__)                                                                      \
  MEMKERN_BOTH("device", Blocked, Device, "exchange", Exchange, "relaxed", Relaxed, __VA_ARGS__)    \
  MEMKERN_BOTH("system", Blocked, System, "exchange", Exchange, "relaxed", Relaxed, __VA_ARGS__)
#define MEMKERN_FLOAT(...)                                                                        \
  MEMKERN_ORDERS(MEMKERN_BOTH, "add", Add, __VA_ARGS__)                                           \
  MEMKERN_BOTH("device", Blocked, Device, "plain", Plain, "relaxed", Relaxed, __VA_ARGS__)          \
  MEMKERN_BOTH("system", Blocked, System, "add", Add, "relaxed", Relaxed, __VA_ARGS__)

// Patterns in which iterations do not depend on each other.
#define MEMKERN_CYCLIC(...)                                                                        \
  MEMKERN_BOTH("coalesced", Cyclic, Device, "add", Add, "relaxed", Relaxed, __VA_ARGS__)           \
  MEMKERN_BOTH("coalesced", Cyclic, Device, "plain", Plain, "relaxed", Relaxed, __VA_ARGS__)
#define MEMKERN_WORD_CYCLIC(...)                                                                   \
  MEMKERN_CYCLIC(__VA_ARGS__)                                                                      \
  MEMKERN_USED("coalesced", Cyclic, Device, "cas", Cas, "relaxed", Relaxed, __VA_ARGS__)

#define MEMKERN_WARP(name, Pattern, V, W, dtype, index)                                           \
  MEMKERN_ROW("warp", "add/relaxed/used", name, dtype, index,                                     \
              Direct<amo::Pattern, Assignment::Blocked, WarpWords<V, true>>)                              \
  MEMKERN_ROW("warp", "add/relaxed/unused", name, dtype, index,                                   \
              Direct<amo::Pattern, Assignment::Blocked, WarpWords<V, false>>)

#define MEMKERN_GATHERED(V, dtype, primitive, P)                                                  \
  MEMKERN_ROW("shared", primitive "/relaxed/unused", "amo.central", dtype, "",                    \
              Gathered<V, Primitive::P>)
#define MEMKERN_SHARED(V, dtype)                                                                  \
  MEMKERN_GATHERED(V, dtype, "add", Add) MEMKERN_GATHERED(V, dtype, "and", And)                   \
  MEMKERN_GATHERED(V, dtype, "or", Or) MEMKERN_GATHERED(V, dtype, "xor", Xor)                     \
  MEMKERN_GATHERED(V, dtype, "min", Min) MEMKERN_GATHERED(V, dtype, "max", Max)

#define MEMKERN_INTEGERS(X, name, Pattern, index64, index32)                                      \
  X(name, Pattern, std::uint64_t, std::uint64_t, "uint64", index64)                               \
  X(name, Pattern, std::uint32_t, std::uint32_t, "uint32", index32)
#define MEMKERN_FLOATS(X, name, Pattern, index64, index32)                                        \
  X(name, Pattern, double, std::uint64_t, "float64", index64)                                     \
  X(name, Pattern, float, std::uint32_t, "float32", index32)
#define MEMKERN_NUMBERS(...)                                                                      \
  MEMKERN_INTEGERS(MEMKERN_VALUES, __VA_ARGS__) MEMKERN_INTEGERS(MEMKERN_WARP, __VA_ARGS__)       \
  MEMKERN_FLOATS(MEMKERN_FLOAT, __VA_ARGS__)
#define MEMKERN_NUMBERS_CYCLIC(...)                                                             \
  MEMKERN_INTEGERS(MEMKERN_WORD_CYCLIC, __VA_ARGS__) MEMKERN_FLOATS(MEMKERN_CYCLIC, __VA_ARGS__)
#define MEMKERN_MOVES(...)                                                                        \
  MEMKERN_INTEGERS(MEMKERN_WORDS, __VA_ARGS__) MEMKERN_INTEGERS(MEMKERN_WORD_CYCLIC, __VA_ARGS__)

constexpr DeviceEntry kEntries[] = {
    MEMKERN_NUMBERS("amo.rand", Rand, "int64", "int32")
    MEMKERN_NUMBERS_CYCLIC("amo.rand", Rand, "int64", "int32")
    MEMKERN_NUMBERS("amo.stride1", Strided, "", "")
    MEMKERN_NUMBERS_CYCLIC("amo.stride1", Strided, "", "")
    MEMKERN_NUMBERS("amo.striden", Strided, "", "")
    MEMKERN_NUMBERS_CYCLIC("amo.striden", Strided, "", "")
    MEMKERN_NUMBERS("amo.central", Central, "", "")
    MEMKERN_SHARED(std::uint64_t, "uint64")
    MEMKERN_SHARED(std::uint32_t, "uint32")
    MEMKERN_INTEGERS(MEMKERN_CHASE, "amo.ptrchase", Chase, "int64", "int32")
    MEMKERN_MOVES("amo.scatter", Scatter, "int64", "int32")
    MEMKERN_MOVES("amo.gather", Gather, "int64", "int32")
    MEMKERN_MOVES("amo.sg", ScatterGather, "int64", "int32")
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
