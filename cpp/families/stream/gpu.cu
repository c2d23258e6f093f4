// The table of STREAM on a GPU.
#include "families/streaming/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
const TableRegistrar registrar({
#include "families/stream/entries.inc"
}, kThreads);
// clang-format on

}  // namespace
}  // namespace memkern::gpu
