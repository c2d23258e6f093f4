// The table of RaiderSTREAM on a GPU.
#include "families/raider/gpu-inl.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

// clang-format off
#define MEMKERN_WIDE double
#define MEMKERN_NARROW float
#define MEMKERN_ONE(name, Op, arrays, T, I, index, ...)                                         \
  {{name, "simt", name_of_type<T>(), index, nullptr, nullptr, 0, By<I, __VA_ARGS__>::kIndices}, \
   map_elements<Indexed<T, By<I, __VA_ARGS__>>, Op, arrays_in(arrays), kIndexedUnroll>},
#define MEMKERN_CENTRAL(name, Op, arrays, ...)                                                         \
  {{name, "simt", "float64", "", nullptr, nullptr}, map_elements<Central<double>, Op, arrays_in(arrays), 1>}, \
  {{name, "simt", "float32", "", nullptr, nullptr}, map_elements<Central<float>, Op, arrays_in(arrays), 1>},

const TableRegistrar registrar({
#include "families/raider/entries.inc"
}, kThreads);
// clang-format on

}  // namespace
}  // namespace memkern::gpu
