// The table of the finite-element streaming tests BS6 to BS8 on a GPU.
#include "families/bs/gpu_mesh-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
#define MEMKERN_ONE(name, indices, K, T, I, dtype, index) \
  {{name, "simt", dtype, index, nullptr, nullptr, 0, indices}, start<T, K<T, I>>},
#define MEMKERN_BALANCED(name, indices, K, T, I, dtype, index) \
  {{name, "balanced", dtype, index, nullptr, nullptr, 0, indices}, start_balanced<T, K<T, I>>},
#define MEMKERN_MESH(ROW, ...)                                   \
  ROW(__VA_ARGS__, double, std::int32_t, "float64", "int32")     \
  ROW(__VA_ARGS__, double, std::int64_t, "float64", "int64")     \
  ROW(__VA_ARGS__, float, std::int32_t, "float32", "int32")      \
  ROW(__VA_ARGS__, float, std::int64_t, "float32", "int64")

constexpr DeviceEntry kEntries[] = {
    MEMKERN_MESH(MEMKERN_ONE, "bs.bs6", 2, Gather)
    MEMKERN_MESH(MEMKERN_BALANCED, "bs.bs6", 2, BalancedGather)
    MEMKERN_MESH(MEMKERN_ONE, "bs.bs7", 1, Scatter)
    MEMKERN_MESH(MEMKERN_ONE, "bs.bs8", 2, GatherScatter)
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
