// The table of streaming kernels on a GPU.
#include "families/streaming/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
#define MEMKERN_MAP_BY(u, name, Op, arrays, ...)                                               \
  {{name, "simt", "float64", "", nullptr, nullptr, u}, map<double, Op, arrays_in(arrays), u>}, \
  {{name, "simt", "float32", "", nullptr, nullptr, u}, map<float, Op, arrays_in(arrays), u>},
#define MEMKERN_VARIANT(variant, one, u, name, Op, arrays, ...)                                         \
  {{name, variant, "float64", "", nullptr, nullptr, u}, reduce<double, Op, arrays_in(arrays), u, one>}, \
  {{name, variant, "float32", "", nullptr, nullptr, u}, reduce<float, Op, arrays_in(arrays), u, one>},
#define MEMKERN_REDUCE_BY(...) \
  MEMKERN_VARIANT("two-kernel", false, __VA_ARGS__) MEMKERN_VARIANT("one-kernel", true, __VA_ARGS__)
#define MEMKERN_BODY_BY(u, name, body)                                   \
  {{name, "simt", "float64", "", nullptr, nullptr, u}, body<double, u>}, \
  {{name, "simt", "float32", "", nullptr, nullptr, u}, body<float, u>},
#define MEMKERN_MAP(...) MEMKERN_MAP_BY(0, __VA_ARGS__)
#define MEMKERN_STORE MEMKERN_MAP
#define MEMKERN_REDUCE(...) MEMKERN_REDUCE_BY(0, __VA_ARGS__)
#define MEMKERN_LOOP(by, ...) \
  by(0, __VA_ARGS__) by(1, __VA_ARGS__) by(2, __VA_ARGS__) by(4, __VA_ARGS__) by(8, __VA_ARGS__)
#define MEMKERN_LOOP_MAP(...) MEMKERN_LOOP(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_STORE MEMKERN_LOOP_MAP
#define MEMKERN_LOOP_REDUCE(...) MEMKERN_LOOP(MEMKERN_REDUCE_BY, __VA_ARGS__)
#define MEMKERN_LOOP_BODY(name, body, ...) \
  MEMKERN_LOOP(MEMKERN_BODY_BY, name, body)

#define MEMKERN_ONE(name, Op, arrays, T, I, dtype, index, ...)                      \
  {{name, "simt", dtype, index, nullptr, nullptr, 0, By<I, __VA_ARGS__>::kIndices}, \
   map_elements<Indexed<T, By<I, __VA_ARGS__>>, Op, arrays_in(arrays), kIndexedUnroll>},
#define MEMKERN_CENTRAL(name, Op, arrays, ...)                                                         \
  {{name, "simt", "float64", "", nullptr, nullptr}, map_elements<Central<double>, Op, arrays_in(arrays), 1>}, \
  {{name, "simt", "float32", "", nullptr, nullptr}, map_elements<Central<float>, Op, arrays_in(arrays), 1>},

constexpr DeviceEntry kEntries[] = {
#include "families/stream/entries.inc"
#include "families/bs/entries.inc"
#include "families/loops/entries.inc"
#include "families/raider/entries.inc"
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
