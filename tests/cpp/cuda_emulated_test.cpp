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

// The same for local variables of a phase.
struct UndefinedInAPhase {
  struct Args {
    std::uint64_t* found;
  };
  using Locals = Nothing;
  static constexpr int kPhases = 1;
  template <int>
  static void run(const Args& a, const Thread& thread, Locals&, unsigned char*) {
    std::uint64_t value;
    const std::uint64_t* at = &value;
    // Otherwise the compiler warns of an uninitialized variable.
    asm volatile("" : "+r"(at) : : "memory");
    a.found[thread.index()] = *at;
  }
};

TEST(Emulation, FillsUndefinedVariablesOfAPhase) {
#ifndef MEMKERN_FILLS_VARIABLES
  GTEST_SKIP() << "this compiler does not fill variables";
#endif
  OnDevice<std::uint64_t> found({0, 0});
  launch<UndefinedInAPhase>({found.data()}, 1, 2, 0, queue());
  for (const std::uint64_t value : found.values()) {
    // Each compiler repeats a byte of its own.
    EXPECT_EQ(value, (value & 0xFFU) * 0x0101010101010101U);
    EXPECT_NE(value, 0U);
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

struct WarpArgs {
  const std::int64_t* values;
  unsigned* same;
  unsigned* odd;
  std::int64_t* first;
};

// Each lane exchanges values with the others, except lanes that have ended.
struct Ask {
  using Args = WarpArgs;
  using Locals = Nothing;
  static constexpr int kPhases = 1;
  using Warps = std::true_type;
  template <int>
  static void run(const Args& a, const Thread& thread, Locals&, unsigned char*) {
    const auto i = thread.index();
    const std::int64_t value = a.values[i];
    if (value < 0) return;
    const unsigned active = active_lanes();
    const unsigned same = lanes_with(active, value);
    a.same[i] = same;
    a.odd[i] = lanes_where(active, value % 2 == 1);
    a.first[i] = from_lane(same, i, first_of(same));
  }
};

TEST(Warps, ExchangeInLockStep) {
  // The last warp is not full.
  constexpr int kThreads = 70;
  std::vector<std::int64_t> values;
  for (int i = 0; i < kThreads; ++i) values.push_back(memkern::testing::scattered(i, 3, 6) - 1);
  OnDevice<std::int64_t> given(values);
  OnDevice<unsigned> same(std::vector<unsigned>(kThreads, 0));
  OnDevice<unsigned> odd(std::vector<unsigned>(kThreads, 0));
  OnDevice<std::int64_t> first(std::vector<std::int64_t>(kThreads, -1));
  launch<Ask>({given.data(), same.data(), odd.data(), first.data()}, 1, kThreads, 0, queue());
  for (int i = 0; i < kThreads; ++i) {
    unsigned wanted_same = 0;
    unsigned wanted_odd = 0;
    std::int64_t wanted_first = -1;
    for (int k = i / 32 * 32; k < std::min(i / 32 * 32 + 32, kThreads); ++k) {
      const std::int64_t other = values[static_cast<std::size_t>(k)];
      if (other < 0 || values[static_cast<std::size_t>(i)] < 0) continue;
      if (other % 2 == 1) wanted_odd |= 1U << k % 32;
      if (other != values[static_cast<std::size_t>(i)]) continue;
      wanted_same |= 1U << k % 32;
      if (wanted_first < 0) wanted_first = k;
    }
    EXPECT_EQ(same.values()[static_cast<std::size_t>(i)], wanted_same) << i;
    EXPECT_EQ(odd.values()[static_cast<std::size_t>(i)], wanted_odd) << i;
    EXPECT_EQ(first.values()[static_cast<std::size_t>(i)], wanted_first) << i;
  }
}

// Diverged lanes may call different functions among themselves.
struct Halves : Ask {
  template <int>
  static void run(const Args& a, const Thread& thread, Locals&, unsigned char*) {
    const std::int64_t i = thread.thread;
    if (i < 16) {
      a.same[i] = lanes_with(0xFFFFU, i / 8);
    } else {
      a.same[i] = lanes_where(0xFFFF0000U, i % 2 == 1);
    }
    a.odd[i] = active_lanes();
  }
};

TEST(Warps, BranchApart) {
  OnDevice<unsigned> same(std::vector<unsigned>(32, 0));
  OnDevice<unsigned> active(std::vector<unsigned>(32, 0));
  launch<Halves>({nullptr, same.data(), active.data(), nullptr}, 1, 32, 0, queue());
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(same.values()[i], i < 8 ? 0xFFU : i < 16 ? 0xFF00U : 0xAAAA0000U);
    EXPECT_EQ(active.values()[i], ~0U);
  }
}

struct Plus {
  static double join(double x, double y) { return x + y; }
};
struct RowArgs {
  const double* values;
  double* sums;
  std::int64_t rows;
  std::int64_t columns;
};

// A warp sums one row after the other, with an exchange between all lanes in a loop.
struct SumRows {
  using Args = RowArgs;
  using Locals = Nothing;
  static constexpr int kPhases = 1;
  using Warps = std::true_type;
  template <int>
  static void run(const Args& a, const Thread& thread, Locals&, unsigned char*) {
    for (std::int64_t row = thread.index() / kWarp; row < a.rows; row += thread.total() / kWarp) {
      double sum = 0.0;
      for (std::int64_t c = lane_of(thread); c < a.columns; c += kWarp) {
        sum += a.values[row * a.columns + c];
      }
      sum = join_lanes<Plus>(thread, sum);
      if (lane_of(thread) == 0) a.sums[row] = sum;
    }
  }
};

// The same in phases, for one row per warp.
struct SumRow {
  using Args = RowArgs;
  struct Locals {
    double value;
  };
  static constexpr int kPhases = 2;
  template <int>
  using After = JoinWarp<Plus>;
  template <int kPhase>
  static void run(const Args& a, const Thread& thread, Locals& locals, unsigned char*) {
    const std::int64_t row = thread.index() / kWarp;
    if constexpr (kPhase == 0) {
      locals.value = 0.0;
      for (std::int64_t c = lane_of(thread); row < a.rows && c < a.columns; c += kWarp) {
        locals.value += a.values[row * a.columns + c];
      }
    } else if (lane_of(thread) == 0 && row < a.rows) {
      a.sums[row] = locals.value;
    }
  }
};

TEST(Warps, CombineValuesInALoopAsInAPhase) {
  constexpr std::int64_t kRows = 13;
  for (const std::int64_t columns : {1, 31, 32, 100}) {
    std::vector<double> values;
    for (std::int64_t k = 0; k < kRows * columns; ++k) {
      values.push_back(1.0 / static_cast<double>(1 + memkern::testing::scattered(k, 5, 1000)));
    }
    OnDevice<double> given(values);
    OnDevice<double> in_loop(std::vector<double>(kRows, 0.0));
    OnDevice<double> in_phase(std::vector<double>(kRows, 0.0));
    launch<SumRows>({given.data(), in_loop.data(), kRows, columns}, 2, 64, 0, queue());
    launch<SumRow>({given.data(), in_phase.data(), kRows, columns}, kRows, 32, 0, queue());
    EXPECT_EQ(in_loop.values(), in_phase.values());
    for (std::int64_t row = 0; row < kRows; ++row) {
      double sum = 0.0;
      for (std::int64_t c = 0; c < columns; ++c) {
        sum += values[static_cast<std::size_t>(row * columns + c)];
      }
      EXPECT_NEAR(in_loop.values()[static_cast<std::size_t>(row)], sum, 1e-12 * sum);
    }
  }
}

// Reads from a lane that has ended.
struct Wrong : Ask {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    if (thread.thread == 0) return;
    from_lane(~0U, 1, 0);
  }
};
// Diverged lanes call different functions, or one function with different masks.
struct Apart : Ask {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    if (thread.thread < 16) {
      lanes_where(~0U, true);
    } else {
      from_lane(~0U, 1, 0);
    }
  }
};
struct OtherMasks : Ask {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    lanes_where(thread.thread < 16 ? 0xFFFFU : ~0U, true);
  }
};
// A lane leaves a loop one iteration before the others.
struct Shorter : Ask {
  template <int>
  static void run(const Args&, const Thread& thread, Locals&, unsigned char*) {
    for (int k = 0; k < (thread.thread == 0 ? 2 : 3); ++k) from_lane(~0U, k, 1);
    lanes_where(~0U, true);
  }
};
struct Undeclared : Ask {
  using Warps = std::false_type;
};

TEST(WarpsDeathTest, EndTheProgramWhereADeviceIsUndefined) {
  OnDevice<std::int64_t> given(std::vector<std::int64_t>(32, 1));
  const WarpArgs args{given.data(), nullptr, nullptr, nullptr};
  EXPECT_DEATH(launch<Wrong>(args, 1, 32, 0, queue()), "a lane of the mask has ended");
  EXPECT_DEATH(launch<Apart>(args, 1, 32, 0, queue()), "call different functions");
  EXPECT_DEATH(launch<OtherMasks>(args, 1, 32, 0, queue()), "have different masks");
  EXPECT_DEATH(launch<Shorter>(args, 1, 32, 0, queue()), "call different functions");
  EXPECT_DEATH(launch<Undeclared>(args, 1, 32, 0, queue()), "must declare Warps");
}

}  // namespace
}  // namespace memkern::gpu
