// The table of gather and scatter on a GPU.
#include "families/spatter/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
#define MEMKERN_BY(u, unrolled, name, op, T, I, dtype, index) \
  {{"spatter." name, "simt", dtype, index, nullptr, nullptr, u}, start<T, I, op, unrolled>},
#define MEMKERN_UNROLLED(...)                                                               \
  MEMKERN_BY(0, kUnrolled, __VA_ARGS__)                                                     \
  MEMKERN_BY(1, 1, __VA_ARGS__) MEMKERN_BY(2, 2, __VA_ARGS__)                               \
  MEMKERN_BY(4, 4, __VA_ARGS__) MEMKERN_BY(8, 8, __VA_ARGS__)
#define MEMKERN_TYPES(name, op)                                                             \
  MEMKERN_UNROLLED(name, op, double, std::int64_t, "float64", "int64")                      \
  MEMKERN_UNROLLED(name, op, double, std::int32_t, "float64", "int32")                      \
  MEMKERN_UNROLLED(name, op, float, std::int64_t, "float32", "int64")                       \
  MEMKERN_UNROLLED(name, op, float, std::int32_t, "float32", "int32")

constexpr DeviceEntry kEntries[] = {
    MEMKERN_TYPES("gather", Op::Gather)
    MEMKERN_TYPES("scatter", Op::Scatter)
    MEMKERN_TYPES("gs", Op::GatherScatter)
    MEMKERN_TYPES("multigather", Op::MultiGather)
    MEMKERN_TYPES("multiscatter", Op::MultiScatter)
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
