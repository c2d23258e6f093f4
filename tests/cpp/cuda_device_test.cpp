// Memory, values, checks of bounds, launches and timers of an emulated device; and gather and
// scatter, whose kernels run here block by block, compared with the processor's kernels.
#include <cuda_runtime.h>
#include <sys/resource.h>

#include "backends/cuda/device.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

Device& device() { return cuda::device(0); }

Placement on_device(std::int64_t offset_B = 0, int workers = 1) {
  return {Pages::Default, {}, offset_B, &device(), workers};
}

std::vector<std::byte> bytes_of(const Problem& p, const Array& a) {
  std::vector<std::byte> all(at(a.rows * a.columns * dtype_size(a.type)));
  p.copy_out(a, all.data());
  return all;
}

// Makes functions of the emulated device fail during its lifetime.
class Failing {
 public:
  explicit Failing(const char* functions) { setenv("MEMKERN_EMULATED_FAIL", functions, 1); }
  ~Failing() { unsetenv("MEMKERN_EMULATED_FAIL"); }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
};

TEST(DeviceMemory, HoldsTheSameValuesAsHostMemory) {
  for (const DType type :
       {DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U64}) {
    for (const std::int64_t offset_B : {0, 8, 4096 + 64}) {
      Declared here(team_of(1), "read:r written:w", offset_B);
      Declared there(team_of(1), "read:r written:w", on_device(offset_B, 5));
      for (Declared* p : {&here, &there}) {
        p->add_array("read", type, 1001, false);
        p->add_array("written", type, 37, true);
        p->commit();
        p->set_seed(3);
        p->fill(true);
      }
      EXPECT_EQ(there.array("written").rows, 5);
      EXPECT_EQ(there.array("written").row_stride, 37);
      for (std::int64_t i = 0; i < 1001; ++i) {
        ASSERT_EQ(there.peek(there.array("read"), i), here.peek(here.array("read"), i)) << i;
      }
      for (std::int64_t i = 0; i < 5 * 37; ++i) {
        ASSERT_EQ(there.peek(there.array("written"), i), here.peek(here.array("written"), i % 37));
      }
      EXPECT_EQ(there.digest("read"), here.digest("read"));
      const std::vector<std::byte> copy = bytes_of(there, there.array("read"));
      EXPECT_EQ(copy, bytes_of(here, here.array("read")));
      there.poke(there.array("read"), 1000, 5.0);
      EXPECT_EQ(there.peek(there.array("read"), 1000), 5.0);
      EXPECT_TRUE(
          is_refused([&] { there.peek(there.array("read"), 1001); }, "lies outside array 'read'"));
      there.copy_in("read", copy.data());
      EXPECT_EQ(there.digest("read"), here.digest("read"));
      EXPECT_EQ(there.footprint_B(), (1001 + 5 * 37) * dtype_size(type));
      EXPECT_EQ(there.obtained_pages(), "cuda:0");
    }
  }
}

TEST(DeviceMemory, IsReadAndWrittenInFewCopies) {
  constexpr std::int64_t kSize = std::int64_t{1} << 20;
  Declared p(team_of(1), "x:u", on_device(8));
  p.add_array("x", DType::F64, kSize, false);
  p.commit();
  p.fill(true);
  const Array& x = p.array("x");
  const auto copies_of = [](const auto& action) {
    const int before = emulated::counts().copies;
    action();
    return emulated::counts().copies - before;
  };
  std::vector<double> got(at(kSize));
  std::vector<double> wanted(got.size());
  p.copy_out(x, wanted.data());
  // In pseudo-random order; the array exceeds the limit of a gap, but not the limit of a copy.
  const std::vector<std::int64_t> all = permutation(kSize, 1);
  EXPECT_EQ(copies_of([&] { p.peek(x, all, got.data()); }), 1);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(got[i], wanted[at(all[i])]);
  // Positions far apart, near each other, and one of them twice: its last value counts.
  const std::vector<std::int64_t> some = {kSize - 1, 3, 500'000, 3, 7, 500'001};
  const std::vector<double> values = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0};
  EXPECT_EQ(copies_of([&] { p.poke(x, some, values); }), 2 * 3);
  EXPECT_EQ(copies_of([&] { p.peek(x, some, got.data()); }), 3);
  EXPECT_EQ(std::vector<double>(got.begin(), got.begin() + 6),
            (std::vector<double>{1.0, 4.0, 3.0, 4.0, 5.0, 6.0}));
  for (std::size_t i = 0; i < some.size(); ++i) wanted[at(some[i])] = got[i];
  got.assign(got.size(), 0.0);
  p.copy_out(x, got.data());
  EXPECT_TRUE(got == wanted);
  // Nothing is written if any position is wrong.
  const std::vector<std::int64_t> wrong = {0, kSize};
  EXPECT_TRUE(is_refused([&] { p.poke(x, wrong, {values.data(), 2}); }, "lies outside array 'x'"));
  EXPECT_EQ(p.peek(x, 0), wanted[0]);
  EXPECT_EQ(copies_of([&] { p.peek(x, {}, got.data()); }), 0);
}

TEST(DeviceMemory, ReceivesCheckedIndices) {
  // Longer than the pieces of a copy.
  std::vector<std::int64_t> values = ascending((std::int64_t{1} << 20) + 5);
  const std::int64_t bound = std::ssize(values);
  for (const DType type : {DType::I32, DType::I64}) {
    Declared p(team_of(1), "", on_device());
    p.add_indices("starts", {values.data(), bound}, type, 0, bound, {}, 3);
    p.commit();
    p.check_starts("starts", bound - 1);
    EXPECT_TRUE(is_refused([&] { p.check_starts("starts", bound); }, "go from 0"));
    std::vector<std::byte> copy(at(bound * dtype_size(type)));
    device().read(copy.data(), p.indices("starts"), std::ssize(copy));
    std::int64_t last = 0;
    std::memcpy(&last, copy.data() + copy.size() - at(dtype_size(type)), at(dtype_size(type)));
    EXPECT_EQ(last, bound - 1);
  }
  values.back() = -1;
  Declared p(team_of(1), "", on_device());
  p.add_indices("starts", {values.data(), bound}, DType::I64, 0, bound);
  EXPECT_TRUE(is_refused([&] { p.commit(); }, "starts[1048580] is -1, outside 0"));
}

TEST(DeviceMemory, HoldsListsOwnedByACase) {
  Declared p(team_of(1), "", on_device());
  const std::vector<std::int64_t> list{3, 1, 4};
  std::vector<std::int64_t> back(3);
  device().read(back.data(), reinterpret_cast<const std::byte*>(p.own(list)), 24);
  EXPECT_EQ(back, list);
  std::vector<std::int32_t> narrow(3);
  const void* own = p.own_indices("list", list, DType::I32, 5);
  device().read(narrow.data(), static_cast<const std::byte*>(own), 12);
  EXPECT_EQ(narrow, (std::vector<std::int32_t>{3, 1, 4}));
}

TEST(DeviceMemory, IsReusedByLaterCases) {
  Arena::release_pool();
  const std::int64_t free_B = device().free_B();
  for (int k = 0; k < 3; ++k) {
    Declared p(team_of(1), "x:r", on_device());
    p.add_array("x", DType::F64, 1000, false);
    p.commit();
  }
  EXPECT_EQ(device().free_B(), free_B - 8000);
  Arena::release_pool();
  EXPECT_EQ(device().free_B(), free_B);
}

TEST(Devices, AreFoundByNumber) {
  EXPECT_EQ(&cuda::device(0), &cuda::device(0));
  EXPECT_EQ(device().name(), "cuda:0");
  EXPECT_GT(device().units(), 0);
  for (const int wrong : {-1, 1}) {
    EXPECT_TRUE(is_refused([&] { cuda::device(wrong); }, "is not one of cuda:0"));
  }
  for (const DeviceEntry& e : device().entries()) {
    EXPECT_TRUE(e.threads > 0 && e.threads <= device().max_threads()) << e.kernel;
  }
  EXPECT_FALSE(cuda::reaches(0, 0));
  EXPECT_GT(cuda::copy_s(0, 1 << 20, 3, 0.0), 0.0);
  EXPECT_TRUE(is_refused([] { cuda::copy_s(0, 0, 3, 0.0); }, "at least 1"));
}

struct Case {
  std::string kernel;
  std::vector<std::int64_t> pattern;
  std::vector<std::int64_t> delta;
  std::int64_t count;
  std::int64_t wrap;
};

std::unique_ptr<Problem> prepare(const Case& c, const Entry& e, const Placement& placement) {
  Given given{e.kernel, e.dtype, e.index, {}, {}, {}};
  Integers inner(c.pattern.size());
  std::iota(inner.rbegin(), inner.rend(), 0);
  const bool multi = c.kernel.starts_with("multi");
  if (multi) given.indices["pattern"] = c.pattern;
  given.indices["pattern_gather"] = multi ? inner : c.pattern;
  given.indices["pattern_scatter"] = multi ? inner : Integers(c.pattern.rbegin(), c.pattern.rend());
  given.indices["delta_gather"] = given.indices["delta_scatter"] = c.delta;
  given.integers = {{"count", c.count}, {"wrap", c.wrap}, {"prefetch", 0}};
  return given.prepare(team_of(1), placement);
}

// No two instances write the same element, so that their order does not matter.
std::vector<Case> apart(const std::string& kernel) {
  std::vector<std::int64_t> is_long = ascending(7000);
  return {{kernel, {0, 1, 2, 3}, {4}, 50, 1},
          {kernel, {5, 0, 3}, {-8}, 41, 3},
          {kernel, {2, 0, 1}, {3, 9, 4}, 33, 4},
          {kernel, {0}, {1}, 2500, 1},
          // Longer than some blocks, which then have the indices in shared memory.
          {kernel, permutation(70, 1), {70}, 23, 1},
          // Longer than a block, and too long for shared memory.
          {kernel, is_long, {7000}, 5, 2}};
}

TEST(Spatter, MatchesTheProcessor) {
  int tried = 0;
  for (const DeviceEntry& e : device().entries()) {
    const std::string kernel = e.kernel;
    if (!kernel.starts_with("spatter.")) continue;
    const RegisteredEntry* host = find_entry(kernel, "scalar", "baseline", e.dtype, e.index);
    ASSERT_NE(host, nullptr) << kernel;
    for (const Case& c : apart(kernel.substr(8))) {
      const auto here = prepare(c, e, {});
      const auto there = prepare(c, e, on_device(tried % 2 == 0 ? 0 : 24));
      for (const int block : {1, 32, 100, 1024}) {
        for (const Range range : {Range{0, c.count}, Range{c.count / 3, c.count - 1}}) {
          // Iterations of a divided pattern are blocks of its indices on the processor alone.
          const bool divided = here->count() != c.count;
          if (divided && range.begin != 0) continue;
          here->fill(true);
          there->fill(true);
          host->body(here->args(), divided ? Range{0, here->count()} : range, 0);
          device().sample({{e.launch, there->args(), range, block}}, 1, Timer::Host, nullptr);
          here->mark_written();
          there->mark_written();
          for (const Array& a : here->arrays()) {
            ASSERT_EQ(bytes_of(*there, there->array(a.name)), bytes_of(*here, a))
                << kernel << " " << a.name << " unroll " << e.unroll << " block " << block;
          }
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 1000);
}

// As the paper's kernels have them, also where every thread of a block has one index.
TEST(Spatter, SharedIndicesAreInTheMemoryOfABlock) {
  int tried = 0;
  for (const DeviceEntry& e : device().entries()) {
    const std::string kernel = e.kernel;
    if (kernel != "spatter.gather" && kernel != "spatter.scatter") continue;
    const auto there =
        prepare({kernel.substr(8), permutation(256, 1), {256}, 40, 1}, e, on_device());
    const bool shared = std::string(e.variant) == "shared";
    const std::size_t index_B = std::string(e.index) == "int64" ? 8 : 4;
    for (const int block : {256, 1024}) {
      device().sample({{e.launch, there->args(), {0, 40}, block}}, 1, Timer::Host, nullptr);
      EXPECT_EQ(emulated::counts().shared_B, shared ? 256 * index_B : 0) << kernel << e.variant;
    }
    tried += shared;
  }
  EXPECT_EQ(tried, 16);
}

// Threads of these instances move one element each, regardless of the unrolling of an entry.
TEST(Spatter, RefusesUnrollingOfInstancesThatAreMovedOneByOne) {
  struct Tried {
    Case c;
    const char* index;
    bool unrolls;
  };
  const Tried all[] = {
      {{"gather", ascending(4), {4}, 50, 2}, "int64", false},
      // Without a dense buffer.
      {{"gs", ascending(4), {4}, 50, 2}, "int64", true},
      {{"multigather", ascending(4), {4, 8}, 50, 1}, "int64", false},
      // Indices of 48 KiB, or slightly more.
      {{"gather", ascending(6144), {1}, 2, 1}, "int64", true},
      {{"gather", ascending(6145), {1}, 2, 1}, "int64", false},
      {{"gather", ascending(6145), {1}, 2, 1}, "int32", true},
      {{"multiscatter", ascending(12289), {1}, 2, 1}, "int32", false},
      {{"gs", ascending(3072), {1}, 2, 1}, "int64", true},
      {{"gs", ascending(3073), {1}, 2, 1}, "int64", false},
  };
  for (const Tried& tried : all) {
    int entries = 0;
    for (const DeviceEntry& e : device().entries()) {
      if ("spatter." + tried.c.kernel != e.kernel || std::string(tried.index) != e.index) continue;
      const std::string what = tried.c.kernel + " unroll " + std::to_string(e.unroll);
      const RegisteredEntry entry{e, "sm_00"};
      EXPECT_TRUE(prepare(tried.c, e, {})->runs(entry)) << what;
      const bool one_by_one = e.unroll == 0 && std::string(e.variant) == "simt";
      EXPECT_EQ(prepare(tried.c, e, on_device())->runs(entry), one_by_one || tried.unrolls) << what;
      ++entries;
    }
    EXPECT_EQ(entries, tried.c.kernel == "gather" || tried.c.kernel == "scatter" ? 14 : 10);
  }
}

// Records the work queued on the emulated device during its lifetime.
class Recording {
 public:
  Recording() { emulated::queued() = &all_; }
  ~Recording() { emulated::queued() = nullptr; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const emulated::Queued& one : all_) found.push_back(one.what);
    return found;
  }
  // The queues of the work with this name.
  std::set<const emulated::Stream*> queues_of(const std::string& what) const {
    std::set<const emulated::Stream*> found;
    for (const emulated::Queued& one : all_) {
      if (one.what == what) found.insert(one.stream);
    }
    return found;
  }

 private:
  std::vector<emulated::Queued> all_;
};

TEST(Devices, AreDescribedWithoutBeingOccupied) {
  const int before = emulated::counts().contexts;
  EXPECT_EQ(cuda::device_count(), 1);
  EXPECT_EQ(cuda::describe(0).isa, "sm_00");
  // 1 GHz, 1024 bits, two transfers per cycle.
  EXPECT_EQ(cuda::describe(0).peak_Bps, 256e9);
  EXPECT_TRUE(cuda::describe(0).ecc);
  EXPECT_EQ(cuda::device(0).max_threads(), 1024);
  EXPECT_EQ(emulated::counts().contexts, before);
  const Failing failing("cudaSetDevice");
  EXPECT_EQ(cuda::describe(0).units, 3);
  EXPECT_TRUE(is_refused<DeviceError>(
      [] { device().free_B(); },
      "using cuda:0 failed: CUDA-capable device(s) is/are busy or unavailable"));
  EXPECT_TRUE(is_refused([] { cuda::describe(1); }, "is not one of cuda:0"));
}

TEST(Devices, CopyBehindADelayAsKernelsRun) {
  const Recording recording;
  cuda::copy_s(0, 4096, 2, 0.0);
  std::vector<std::string> wanted;
  for (int k = 0; k < 3; ++k) {
    for (const char* each : {"launch", "event", "copy", "event"}) wanted.emplace_back(each);
  }
  EXPECT_EQ(recording.names(), wanted);
}

// Counts its calls; a call without a queue loads the kernel.
struct Calls {
  int loaded = 0;
  int started = 0;
};
void count_calls(const void* args, Range range, int threads, void* queue) {
  EXPECT_EQ(range.end, 7);
  EXPECT_EQ(threads, 3);
  Calls& calls = *static_cast<Calls*>(const_cast<void*>(args));
  ++(queue == nullptr ? calls.loaded : calls.started);
}

TEST(Timers, RunAsOftenAsRequested) {
  for (const Timer timer : {Timer::Host, Timer::Events}) {
    Calls first;
    Calls second;
    const auto sequence = device().prepare(
        {{count_calls, &first, {0, 7}, 3}, {count_calls, &second, {0, 7}, 3}}, timer);
    EXPECT_EQ(first.loaded, 1);
    EXPECT_EQ(first.started, 0);
    EXPECT_GT(sequence->sample(5, nullptr), 0.0);
    // More invocations than events that are queued at once.
    for (const int invocations : {3, 300}) {
      double per_step[2] = {0.0, 0.0};
      const double all = sequence->sample(invocations, per_step);
      EXPECT_GT(all, 0.0);
      EXPECT_NEAR(per_step[0] + per_step[1], all, 1e-3);
    }
    EXPECT_EQ(first.started, 308);
    EXPECT_EQ(second.started, 308);
    EXPECT_EQ(second.loaded, 1);
  }
}

const DeviceEntry& entry_named(const std::string& kernel) {
  const auto& all = device().entries();
  return *std::find_if(all.begin(), all.end(),
                       [&](const DeviceEntry& e) { return e.kernel == kernel; });
}

// One launch of a kernel without arrays.
std::vector<DeviceStep> launch_of(const std::string& kernel) {
  return {{entry_named(kernel).launch, nullptr, {0, 1}, 32}};
}

TEST(Timers, MakeEventsAndGraphsOnce) {
  const std::vector<DeviceStep> steps = launch_of("launch.empty");
  const emulated::Counts before = emulated::counts();
  const auto by_events = device().prepare(steps, Timer::Events);
  for (int k = 0; k < 5; ++k) by_events->sample(20, nullptr);
  EXPECT_EQ(emulated::counts().events, before.events + 2);
  const auto by_graph = device().prepare(steps, Timer::Graph);
  for (int k = 0; k < 5; ++k) by_graph->sample(70, nullptr);
  // One graph of 64 launches and one of 6, uploaded before they are timed.
  EXPECT_EQ(emulated::counts().graphs, before.graphs + 2);
  EXPECT_EQ(emulated::counts().uploads, before.uploads + 2);
}

// Without a delay the first event would complete while the first launch is still being queued.
TEST(Timers, StartEventsBehindADelay) {
  std::vector<DeviceStep> steps = launch_of("launch.empty");
  steps.push_back(steps.front());
  const auto sequence = device().prepare(steps, Timer::Events);
  const auto queued_by = [&](double* per_step) {
    const Recording recording;
    sequence->sample(1, per_step);
    return recording.names();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(queued_by(nullptr), (Names{"launch", "event", "launch", "launch", "event"}));
  double per_step[2] = {0.0, 0.0};
  EXPECT_EQ(queued_by(per_step), (Names{"launch", "event", "launch", "event", "launch", "event"}));
}

// Otherwise each trial would time the first replay of a new graph.
TEST(Timers, KeepTheGraphsOfEveryCandidateDuringTrials) {
  Request request;
  request.kernel = "loops.dot";
  request.inputs.integers = {{"elements", 1000}, {"prefetch", 0}};
  request.device = &device();
  request.timer = Timer::Graph;
  Prepared prepared(request);
  const auto candidates = prepared.runner().candidates();
  ASSERT_GT(candidates.size(), 1U);
  const emulated::Counts before = emulated::counts();
  for (int trial = 0; trial < 5; ++trial) {
    for (const auto& [variant, isa] : candidates) {
      prepared.select(variant, isa);
      prepared.run(20);
    }
  }
  EXPECT_EQ(emulated::counts().graphs, before.graphs + static_cast<int>(candidates.size()));
}

TEST(Timers, LoadKernelsBeforeACapture) {
  emulated::loaded().clear();
  const std::vector<DeviceStep> steps = launch_of("launch.compute");
  EXPECT_GT(device().sample(steps, 2, Timer::Graph, nullptr), 0.0);
  const Failing failing("cudaFuncGetAttributes");
  EXPECT_TRUE(
      is_refused<DeviceError>([&] { device().prepare(steps, Timer::Graph); }, "loading a kernel"));
}

// A failed capture is ended, so that later samples can be taken.
TEST(Timers, SurviveFailures) {
  const std::vector<DeviceStep> steps = launch_of("launch.empty");
  const std::pair<const char*, const char*> known[] = {
      {"launch", "launching a kernel failed"},
      {"launch cudaStreamEndCapture", "launching a kernel failed"},
      {"launch cudaGraphDestroy", "launching a kernel failed"},
      {"cudaStreamBeginCapture", "beginning a graph failed: unknown error"},
      {"cudaStreamEndCapture", "ending a graph failed: operation failed due to a previous error"},
      {"cudaGraphInstantiate", "instantiating a graph failed"},
      {"cudaGraphUpload", "uploading a graph failed"}};
  for (const auto& [function, message] : known) {
    const auto sequence = device().prepare(steps, Timer::Graph);
    {
      const Failing failing(function);
      EXPECT_TRUE(is_refused<DeviceError>([&] { sequence->sample(3, nullptr); }, message));
    }
    EXPECT_GT(sequence->sample(3, nullptr), 0.0);
    EXPECT_GT(device().sample(steps, 3, Timer::Host, nullptr), 0.0);
  }
}

// The runtime keeps the error of a call until it is read, and launches read it.
TEST(Failures, AreNotReportedByLaterLaunches) {
  const std::vector<DeviceStep> steps = launch_of("launch.empty");
  for (const char* function : {"cudaSetDevice", "cudaFree", "cudaFreeHost", "cudaEventDestroy",
                               "cudaGraphDestroy", "cudaGraphExecDestroy"}) {
    std::byte* on_device = device().allocate(8);
    std::vector<std::pair<DeviceMemory*, std::byte*>> on_host;
    for (const char* memory : {"pinned", "managed"}) {
      DeviceMemory& host = device().other(memory);
      on_host.emplace_back(&host, host.allocate(8));
    }
    auto by_events = device().prepare(steps, Timer::Events);
    by_events->sample(1, nullptr);
    auto by_graph = device().prepare(steps, Timer::Graph);
    by_graph->sample(1, nullptr);
    auto later = device().prepare(steps, Timer::Host);
    const bool holds_it = std::string(function) == "cudaSetDevice";
    {
      const Failing failing(function);
      if (!holds_it) by_graph->sample(2, nullptr);
      by_events.reset();
      by_graph.reset();
      device().release(on_device);
      for (const auto& [host, data] : on_host) host->release(data);
    }
    EXPECT_EQ(emulated::last_error(), cudaSuccess) << function;
    EXPECT_GT(later->sample(1, nullptr), 0.0) << function;
    if (!holds_it) continue;
    // Without its device, nothing was released.
    device().release(on_device);
    for (const auto& [host, data] : on_host) host->release(data);
  }
  {
    const Failing failing("cudaMallocManaged cudaHostAlloc");
    for (const char* memory : {"pinned", "managed"}) {
      EXPECT_TRUE(is_refused<MemoryError>([&] { device().other(memory).allocate(8); },
                                          std::string("no ") + memory + " buffer of 8 bytes"));
      EXPECT_EQ(emulated::last_error(), cudaSuccess) << memory;
    }
  }
  EXPECT_TRUE(is_refused<MemoryError>([] { device().allocate(std::int64_t{1} << 40); },
                                      "refused a buffer"));
  EXPECT_EQ(emulated::last_error(), cudaSuccess);
  const Failing of_memory("cudaMalloc");
  EXPECT_TRUE(is_refused<DeviceError>([] { device().other("managed").allocate(8); },
                                      "allocating memory failed: unknown error"));
}

Given transfer(const std::string& kernel, std::int64_t words, std::int64_t memory) {
  return {kernel, "uint64", "", {{"words", words}, {"memory", memory}}, {}, {}};
}

const DeviceEntry& transfer_entry(const std::string& kernel, const std::string& variant,
                                  const std::string& memory) {
  const auto& all = device().entries();
  return *std::find_if(all.begin(), all.end(), [&](const DeviceEntry& e) {
    return e.kernel == kernel && e.variant == variant && e.template_variant == memory;
  });
}

TEST(Transfers, MoveManagedMemoryBackBeforeEachSample) {
  for (const std::string way : {"to_device", "from_device", "both"}) {
    for (const std::string variant : {"touch", "prefetch"}) {
      const std::string kernel = "transfers." + way;
      const auto problem = transfer(kernel, 513, 2).prepare(team_of(1), on_device());
      const DeviceEntry& e = transfer_entry(kernel, variant, "managed");
      problem->fill(true);
      const auto sequence = device().prepare(
          {{e.launch, problem->args(), {0, 1}, e.threads, e.prepare}}, Timer::Host);
      const int before = emulated::counts().prefetches;
      for (int k = 0; k < 3; ++k) EXPECT_GT(sequence->sample(1, nullptr), 0.0);
      const int directions = way == "both" ? 2 : 1;
      const int each = directions * (variant == "prefetch" ? 2 : 1);
      EXPECT_EQ(emulated::counts().prefetches - before, 3 * each) << kernel << variant;
      const std::string last = way == "both" ? "back_source" : "source";
      const bool to_host = (way == "to_device") != (variant == "prefetch");
      EXPECT_EQ(emulated::managed().at(problem->array(last).data), to_host ? emulated::kHost : 0)
          << kernel << variant;
      // The second page has a single word.
      EXPECT_EQ(problem->array("target").columns, 2);
      EXPECT_EQ(problem->peek(problem->array("target"), 1),
                problem->peek(problem->array("source"), 512));
    }
  }
}

TEST(Transfers, UseAQueueForEachWay) {
  const std::vector<std::pair<std::string, std::int64_t>> memories = {
      {"pageable", 0}, {"pinned", 1}, {"managed", 2}};
  for (const auto& [memory, number] : memories) {
    for (const std::string way : {"to_device", "from_device", "both"}) {
      const std::string kernel = "transfers." + way;
      const bool copies = memory != "managed";
      const auto problem = transfer(kernel, 512, number).prepare(team_of(1), on_device());
      problem->fill(true);
      const DeviceEntry& e = transfer_entry(kernel, copies ? "copy" : "prefetch", memory);
      const auto sequence =
          device().prepare({{e.launch, problem->args(), {0, 1}, e.threads}}, Timer::Host);
      const Recording recording;
      EXPECT_GT(sequence->sample(1, nullptr), 0.0);
      EXPECT_EQ(recording.queues_of(copies ? "copy" : "prefetch").size(), way == "both" ? 2U : 1U)
          << kernel << memory;
    }
  }
}

TEST(Transfers, UseMemoryOfTheirKindAndReleaseIt) {
  Arena::release_pool();
  const std::int64_t free_B = device().free_B();
  for (const std::int64_t memory : {0, 1, 2}) {
    const Given given = transfer("transfers.to_device", 100, memory);
    const auto problem = given.prepare(team_of(1), on_device());
    const std::byte* source = problem->array("source").data;
    EXPECT_EQ(emulated::pinned().count(source), memory == 1 ? 1U : 0U);
    EXPECT_EQ(emulated::managed().count(source), memory == 2 ? 1U : 0U);
    EXPECT_EQ(emulated::holds(source, 1), memory == 2);
  }
  EXPECT_TRUE(emulated::pinned().empty());
  EXPECT_TRUE(emulated::managed().empty());
  Arena::release_pool();
  EXPECT_EQ(device().free_B(), free_B);
  Given alone = transfer("transfers.between", 1, 0);
  alone.integers["peer"] = 0;
  EXPECT_TRUE(is_refused([&] { alone.prepare(team_of(1), on_device()); }, "needs two"));
  const Given both = transfer("transfers.both", 1, 0);
  EXPECT_TRUE(is_refused([&] { both.prepare(team_of(1)); }, "moves data from or to a GPU"));
}

// Limits the address space of this process to its current size plus `more_B`.
class Limited {
 public:
  explicit Limited(std::int64_t more_B) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limited = before_;
    limited.rlim_cur = static_cast<rlim_t>(testing::status_B("VmSize") + more_B);
    setrlimit(RLIMIT_AS, &limited);
  }
  ~Limited() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(Transfers, FindTheMemoryThatLimitsLeave) {
  const std::int64_t limit_B = 1 << 28;
  const Limited limited(limit_B);
  for (const std::string memory : {"pageable", "pinned", "managed"}) {
    EXPECT_LE(device().other(memory).free_B(), limit_B) << memory;
  }
}

TEST(Launches, HaveFurtherSharedMemory) {
  DeviceStep step = launch_of("launch.empty").front();
  // The limit of shared memory is an attribute of the kernel, which cases of several sizes share.
  step.shared_B = 98304;
  const auto most = device().prepare({step}, Timer::Host);
  step.shared_B = 65536;
  const auto less = device().prepare({step}, Timer::Host);
  for (const auto& sequence : {most.get(), less.get()}) {
    EXPECT_GT(sequence->sample(1, nullptr), 0.0);
  }
}

TEST(Caches, AreFlushedByWritingAndThenReading) {
  EXPECT_EQ(device().cache_B(), 1 << 17);
  constexpr std::size_t kWords = 512;
  std::vector<std::byte*> memory = {device().allocate(4096), device().allocate(4096)};
  // A thread that reads this value writes it to the other memory; each word has a thread.
  constexpr std::uint64_t kRead = 0x6D656D6B65726E21;
  for (const std::size_t at : {std::size_t{0}, kWords - 1}) {
    std::vector<std::uint64_t> before(kWords, 7);
    before[at] = kRead;
    device().write(memory[1], before.data(), 4096);
    device().flush(memory[0], memory[1], 4096);
    std::vector<std::uint64_t> after(kWords);
    device().read(after.data(), memory[1], 4096);
    EXPECT_EQ(after, before);
    device().read(after.data(), memory[0], 4096);
    EXPECT_EQ(after[0], kRead);
    EXPECT_NE(after[1], 0xA5A5A5A5A5A5A5A5U);
    EXPECT_EQ(std::vector<std::uint64_t>(after.begin() + 1, after.end()),
              std::vector<std::uint64_t>(kWords - 1, after[1]));
  }
  for (std::byte* data : memory) device().release(data);
}

}  // namespace
}  // namespace memkern
