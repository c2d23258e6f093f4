// The table of the finite-element streaming tests BS6 to BS8 on a GPU.
#include "families/bs/gpu_mesh-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

std::vector<DeviceEntry> table() {
  std::vector<DeviceEntry> all;
  for_indexed_types([&](auto value, auto index) {
    using T = decltype(value);
    using I = decltype(index);
    const auto add = [&](const char* kernel, const char* variant, int indices, Launch launch) {
      all.push_back(
          {{kernel, variant, name_of_type<T>(), name_of_type<I>(), nullptr, nullptr, 0, indices},
           launch});
    };
    add("bs.bs6", "simt", 2, start<T, Gather<T, I>>);
    add("bs.bs6", "balanced", 2, start_balanced<T, BalancedGather<T, I>>);
    add("bs.bs7", "simt", 1, start<T, Scatter<T, I>>);
    add("bs.bs8", "simt", 2, start<T, GatherScatter<T, I>>);
  });
  return all;
}

const TableRegistrar registrar(table(), kThreads);

}  // namespace
}  // namespace memkern::gpu
