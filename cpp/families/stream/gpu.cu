// The table of STREAM on a GPU.
#include "families/streaming/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
constexpr DeviceEntry kEntries[] = {
#include "families/stream/entries.inc"
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
