// An empty kernel, for the cost of a launch, and work without memory accesses, on a GPU.
#include <cstdint>

#include "gpu/empty.hpp"
#include "gpu/grid.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

constexpr int kThreads = 256;

// A thousand dependent multiplications per iteration.
struct Compute : Stateless<Range> {
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& range, const Thread& thread, Locals&,
                                   unsigned char*) {
    std::uint64_t x = 1;
    for (std::int64_t i = range.begin + thread.index(); i < range.end; i += thread.total()) {
      for (int k = 0; k < 1000; ++k) {
        x *= 3;
#ifdef __CUDA_ARCH__
        asm volatile("" : "+l"(x));
#else
        asm volatile("" : "+r"(x));
#endif
      }
    }
  }
};

void compute(const void*, Range range, int threads, void* queue) {
  launch<Compute>(range, blocks_for(range.end - range.begin, threads), threads, 0, queue);
}

const TableRegistrar registrar(
    {
        {{"launch.empty", "simt", "float64", "", nullptr, nullptr}, empty},
        {{"launch.compute", "simt", "float64", "", nullptr, nullptr}, compute},
    },
    kThreads);

}  // namespace
}  // namespace memkern::gpu
