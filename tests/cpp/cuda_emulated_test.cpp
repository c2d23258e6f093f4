// Errors that the emulated device detects, and its warps, with kernels of this file.
#include <cuda_runtime.h>

#include "backends/cuda/device.hpp"
#include "gpu/grid.hpp"
#include "gpu/warp.hpp"
#include "support.hpp"

namespace memkern::gpu {
namespace {

using memkern::testing::is_refused;

cudaStream_t queue() {
  static cudaStream_t one = [] {
    cudaStream_t made = nullptr;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  }();
  return one;
}

// Memory of the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    data_ = reinterpret_cast<T*>(device().allocate(bytes()));
    device().write(reinterpret_cast<std::byte*>(data_), values.data(), bytes());
  }
  ~OnDevice() { device().release(reinterpret_cast<std::byte*>(data_)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() { return data_; }
  std::vector<T> values() const {
    std::vector<T> all(size_);
    device().read(all.data(), reinterpret_cast<const std::byte*>(data_), bytes());
    return all;
  }

 private:
  static Device& device() { return cuda::device(0); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(size_ * sizeof(T)); }
  std::size_t size_;
  T* data_;
};

// Appends the numbers of blocks and threads to a list, in the order in which they run each phase.
struct Order {
  struct Args {
    std::int64_t* list;
    std::int64_t* length;
  };
  using Locals = Nothing;
  static constexpr int kPhases = 2;
  template <int>
  static void run(const Args& a, const Thread& thread, Locals&, unsigned char*) {
    a.list[(*a.length)++] = thread.index();
  }
};

TEST(Emulation, RunsBlocksAndTheThreadsOfEachPhaseInAnyOrder) {
  constexpr std::int64_t kBlocks = 3;
  constexpr std::int64_t kThreads = 5;
  std::set<std::vector<std::int64_t>> orders;
  int different = 0;
  for (int time = 0; time < 8; ++time) {
    OnDevice<std::int64_t> list(std::vector<std::int64_t>(2 * kBlocks * kThreads, -1));
    OnDevice<std::int64_t> length(std::vector<std::int64_t>{0});
    launch<Order>({list.data(), length.data()}, kBlocks, kThreads, 0, queue());
    const std::vector<std::int64_t> found = list.values();
    orders.insert(found);
    std::set<std::int64_t> blocks;
    // A phase ends before the next one begins, and a block before another one.
    for (auto block = found.begin(); block != found.end(); block += 2 * kThreads) {
      const std::vector<std::int64_t> first(block, block + kThreads);
      const std::vector<std::int64_t> second(block + kThreads, block + 2 * kThreads);
      different += first == second ? 0 : 1;
      std::set<std::int64_t> wanted;
      for (int t = 0; t < kThreads; ++t) wanted.insert(*block / kThreads * kThreads + t);
      for (const auto& phase : {first, second}) {
        EXPECT_EQ(std::set<std::int64_t>(phase.begin(), phase.end()), wanted);
      }
      blocks.insert(*block / kThreads);
    }
    EXPECT_EQ(std::ssize(blocks), kBlocks);
  }
  EXPECT_GT(orders.size(), 4U);
  EXPECT_GT(different, 8 * kBlocks / 2);
}

struct Undefined {
  struct Args {
    double* found;
  };
  struct Locals {
    double value;
  };
  static constexpr int kPhases = 1;
  template <int>
  static void run(const Args& a, const Thread& thread, Locals& locals, unsigned char*) {
    a.found[thread.index()] = locals.value;
    locals.value = 1.0;
  }
};

TEST(Emulation, FillsUndefinedVariablesOfEveryBlock) {
  OnDevice<double> found({0.0, 0.0, 0.0, 0.0});
  launch<Undefined>({found.data()}, 2, 2, 0, queue());
  for (const double value : found.values()) {
    EXPECT_TRUE(value != 0.0 && value != 1.0) << value;
  }
}

TEST(Emulation, RefusesWhatNoDeviceRuns) {
  OnDevice<double> found({0.0});
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  struct {
    std::int64_t blocks;
    int threads;
    std::size_t shared_B;
    const char* error = "invalid configuration argument";
  } const wrong[] = {{0, 1, 0},
                     {-1, 1, 0},
                     {kMost + 1, 1, 0},
                     {1, 0, 0},
                     {1, 1025, 0},
                     {1, -32, 0},
                     {1, 1, 49153, "invalid argument"}};
  for (const auto& w : wrong) {
    EXPECT_TRUE(is_refused<DeviceError>(
        [&] { launch<Undefined>({found.data()}, w.blocks, w.threads, w.shared_B, queue()); },
        std::string("launching a kernel failed: ") + w.error));
  }
  EXPECT_EQ(found.values(), std::vector<double>{0.0});
}

TEST(Emulation, FindsPointersToMemoryOfTheHost) {
  if (!emulated::kChecksPointers) GTEST_SKIP() << "this compiler cannot clear padding";
  std::vector<double> host(1);
  double local = 0.0;
  for (double* pointer : {host.data(), &local}) {
    EXPECT_TRUE(is_refused<DeviceError>([&] { launch<Undefined>({pointer}, 1, 1, 0, queue()); },
                                        "an illegal memory access"));
  }
}

struct OfWarps {
  struct Args {
    unsigned* found;
    unsigned* active;
  };
  using Locals = Nothing;
  static constexpr int kPhases = 1;
  using Warps = std::true_type;
};

// Diverged lanes may call different functions among themselves.
struct Halves : OfWarps {
  template <int>
  static void run(const Args& a, const Thread& thread, Locals&, unsigned char*) {
    const int i = thread.thread;
    if (i < 16) {
      a.found[i] = lanes_with(0xFFFFU, i / 8);
    } else {
      a.found[i] = from_lane(0xFFFF0000U, static_cast<unsigned>(i), i - i % 2);
    }
    a.active[i] = active_lanes();
  }
};

TEST(Warps, BranchApart) {
  OnDevice<unsigned> found(std::vector<unsigned>(32, 0));
  OnDevice<unsigned> active(std::vector<unsigned>(32, 0));
  launch<Halves>({found.data(), active.data()}, 1, 32, 0, queue());
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(found.values()[i], i < 8 ? 0xFFU : i < 16 ? 0xFF00U : i - i % 2);
    EXPECT_EQ(active.values()[i], ~0U);
  }
}

// Reads from a lane that has ended.
struct Wrong : OfWarps {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    if (thread.thread == 0) return;
    from_lane(~0U, 1, 0);
  }
};
// Diverged lanes call different functions, or one function with different masks.
struct Apart : OfWarps {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    if (thread.thread < 16) {
      lanes_with(~0U, 1);
    } else {
      from_lane(~0U, 1, 0);
    }
  }
};
struct OtherMasks : OfWarps {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    lanes_with(thread.thread < 16 ? 0xFFFFU : ~0U, 1);
  }
};
// A lane leaves a loop one iteration before the others.
struct Shorter : OfWarps {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    for (int k = 0; k < (thread.thread == 0 ? 2 : 3); ++k) from_lane(~0U, k, 1);
    lanes_with(~0U, 1);
  }
};
struct Undeclared : Halves {
  using Warps = std::false_type;
};

TEST(WarpsDeathTest, EndTheProgramWhereADeviceIsUndefined) {
  const OfWarps::Args args{};
  EXPECT_DEATH(launch<Wrong>(args, 1, 32, 0, queue()), "a lane of the mask has ended");
  EXPECT_DEATH(launch<Apart>(args, 1, 32, 0, queue()), "call different functions");
  EXPECT_DEATH(launch<OtherMasks>(args, 1, 32, 0, queue()), "have different masks");
  EXPECT_DEATH(launch<Shorter>(args, 1, 32, 0, queue()), "call different functions");
  EXPECT_DEATH(launch<Undeclared>(args, 1, 32, 0, queue()), "must declare Warps");
}

}  // namespace
}  // namespace memkern::gpu
