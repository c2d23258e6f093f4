// The table of the finite-element streaming tests BS0 to BS5 on a GPU.
#include "families/bs/gpu-inl.hpp"
#include "gpu/empty.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
const TableRegistrar registrar({
    {{"bs.bs0", "simt", "float64", "", nullptr, nullptr}, empty},
#include "families/bs/entries.inc"
}, kThreads);
// clang-format on

}  // namespace
}  // namespace memkern::gpu
