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

// The same with the indices in shared memory, by default and one element per thread.
template <Op kOp>
void add_shared(std::vector<DeviceEntry>& all, const char* kernel) {
  for_indexed_types([&](auto value, auto index) {
    using T = decltype(value);
    using I = decltype(index);
    const auto entry = [&](int unroll, Launch launch) {
      all.push_back(
          {{kernel, "shared", name_of_type<T>(), name_of_type<I>(), nullptr, nullptr, unroll},
           launch});
    };
    entry(0, start<T, I, kOp, kUnrolled, true>);
    entry(1, start<T, I, kOp, 1, true>);
  });
}

std::vector<DeviceEntry> table() {
  std::vector<DeviceEntry> all;
  add<Op::Gather, 0, 1, 2, 4, 8>(all, "spatter.gather");
  add<Op::Scatter, 0, 1, 2, 4, 8>(all, "spatter.scatter");
  add<Op::GatherScatter, 0, 1, 2, 4, 8>(all, "spatter.gs");
  add<Op::MultiGather, 0, 1, 2, 4, 8>(all, "spatter.multigather");
  add<Op::MultiScatter, 0, 1, 2, 4, 8>(all, "spatter.multiscatter");
  add_shared<Op::Gather>(all, "spatter.gather");
  add_shared<Op::Scatter>(all, "spatter.scatter");
  return all;
}

const TableRegistrar registrar(table(), kThreads);

}  // namespace
}  // namespace memkern::gpu
