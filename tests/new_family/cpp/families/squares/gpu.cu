// Squares on a GPU.
#include "families/streaming/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

#define MEMKERN_OPERATIONS
#include "families/squares/entries.inc"
#undef MEMKERN_OPERATIONS

// clang-format off
constexpr DeviceEntry kEntries[] = {
#include "families/squares/entries.inc"
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
