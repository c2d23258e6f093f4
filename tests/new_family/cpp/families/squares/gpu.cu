// Squares on a GPU.
#include "families/streaming/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

#define MEMKERN_OPERATIONS
#include "families/squares/entries.inc"
#undef MEMKERN_OPERATIONS

// clang-format off
const TableRegistrar registrar({
#include "families/squares/entries.inc"
}, kThreads);
// clang-format on

}  // namespace
}  // namespace memkern::gpu
