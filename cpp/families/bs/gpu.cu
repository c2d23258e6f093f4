// The table of the finite-element streaming tests BS0 to BS5 on a GPU.
#include "families/bs/gpu-inl.hpp"
#include "gpu/empty.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
constexpr DeviceEntry kEntries[] = {
    {{"bs.bs0", "simt", "float64", "", nullptr, nullptr}, empty},
#include "families/bs/entries.inc"
};
// clang-format on

const TableRegistrar registrar(kEntries, sizeof kEntries / sizeof kEntries[0], kThreads);

}  // namespace
}  // namespace memkern::gpu
