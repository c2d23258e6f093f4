// The table of gather and scatter on a GPU.
#include "families/spatter/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// The entries of a kernel with numbers of steps that are unrolled; 0 is the default.
template <Op kOp, int... kUnrolls>
void add(std::vector<DeviceEntry>& all, const char* kernel) {
  for_indexed_types([&](auto value, auto index) {
    using T = decltype(value);
    using I = decltype(index);
    (all.push_back(
         {{kernel, "simt", name_of_type<T>(), name_of_type<I>(), nullptr, nullptr, kUnrolls},
          start < T,
          I,
          kOp,
          kUnrolls == 0 ? kUnrolled : kUnrolls > }),
     ...);
  });
}

std::vector<DeviceEntry> table() {
  std::vector<DeviceEntry> all;
  add<Op::Gather, 0, 1, 2, 4, 8>(all, "spatter.gather");
  add<Op::Scatter, 0, 1, 2, 4, 8>(all, "spatter.scatter");
  add<Op::GatherScatter, 0, 1, 2, 4, 8>(all, "spatter.gs");
  add<Op::MultiGather, 0, 1, 2, 4, 8>(all, "spatter.multigather");
  add<Op::MultiScatter, 0, 1, 2, 4, 8>(all, "spatter.multiscatter");
  return all;
}

const TableRegistrar registrar(table(), kThreads);

}  // namespace
}  // namespace memkern::gpu
