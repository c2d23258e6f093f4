// The table of the loop kernels on a GPU.
#include "families/loops/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
#define MEMKERN_BODY_BY(u, name, body)                                   \
  {{name, "simt", "float64", "", nullptr, nullptr, u}, body<double, u>}, \
  {{name, "simt", "float32", "", nullptr, nullptr, u}, body<float, u>},
#define MEMKERN_LOOP(by, ...) \
  by(0, __VA_ARGS__) by(1, __VA_ARGS__) by(2, __VA_ARGS__) by(4, __VA_ARGS__) by(8, __VA_ARGS__)
#define MEMKERN_LOOP_MAP(...) MEMKERN_LOOP(MEMKERN_MAP_BY, __VA_ARGS__)
#define MEMKERN_LOOP_STORE MEMKERN_LOOP_MAP
#define MEMKERN_LOOP_REDUCE(...) MEMKERN_LOOP(MEMKERN_REDUCE_BY, __VA_ARGS__)
#define MEMKERN_LOOP_BODY(name, body, ...) \
  MEMKERN_LOOP(MEMKERN_BODY_BY, name, body)

const TableRegistrar registrar({
#include "families/loops/entries.inc"
}, kThreads);
// clang-format on

}  // namespace
}  // namespace memkern::gpu
