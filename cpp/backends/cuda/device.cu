// A CUDA device: its memory, launches and samples.

#include "backends/cuda/device.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "core/errors.hpp"
#include "core/limits.hpp"
#include "gpu/grid.hpp"
#include "gpu/instructions.hpp"
#include "gpu/registry.hpp"

namespace memkern::cuda {
namespace {

using gpu::blocks_for;
using gpu::check;
using gpu::launch;
using gpu::Nothing;
using gpu::Stateless;
using gpu::succeeded;
using gpu::Thread;

constexpr int kThreads = 256;
// Invocations per graph: enough that the launch of the graph costs each of them almost nothing.
constexpr std::int64_t kGraph = 64;

struct FillArgs {
  void* data;
  std::int64_t rows;
  std::int64_t columns;
  std::uint32_t salt;
};

template <class T>
struct Fill : Stateless<FillArgs> {
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& args, const Thread& thread, Locals&,
                                   unsigned char*) {
    T* to = static_cast<T*>(args.data);
    for (std::int64_t i = thread.index(); i < args.rows * args.columns; i += thread.total()) {
      const auto column = static_cast<std::uint32_t>(i % args.columns);
      to[i] = static_cast<T>(fill_value(column, args.salt));
    }
  }
};

// Calls f with the kernel that fills arrays of a type.
template <class F>
void with_fill(const std::string& type, const F& f) {
  if (type == "float64") f(Fill<double>{});
  if (type == "float32") f(Fill<float>{});
  if (type == "int64") f(Fill<std::int64_t>{});
  if (type == "int32") f(Fill<std::int32_t>{});
  if (type == "uint64") f(Fill<std::uint64_t>{});
  if (type == "uint32") f(Fill<std::uint32_t>{});
}

// Reads memory without writing: `to` is written only for a value that no memory contains.
struct ReadArgs {
  const std::uint64_t* from;
  std::uint64_t* to;
  std::int64_t count;
};
struct Read : Stateless<ReadArgs> {
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& args, const Thread& thread, Locals&,
                                   unsigned char*) {
    std::uint64_t all = 0;
    for (std::int64_t i = thread.index(); i < args.count; i += thread.total()) all |= args.from[i];
    if (all == 0x6D656D6B65726E21U) *args.to = all;
  }
};

// Keeps the device busy for a limited time, so that the following launches are queued before the
// first of them starts. Limited, because a full queue waits for the device.
struct Delay : Stateless<std::int64_t> {  // nanoseconds
  template <int>
  MEMKERN_ANYWHERE static void run([[maybe_unused]] const Args& ns, const Thread&, Locals&,
                                   unsigned char*) {
#ifdef MEMKERN_ON_DEVICE
    const std::int64_t begin = gpu::nanoseconds();
    while (gpu::nanoseconds() - begin < ns) {
    }
#endif
  }
};

// Queues it before this number of launches and events.
void delay(cudaStream_t queue, std::int64_t launches) {
  constexpr std::int64_t kQueueing_ns = 10'000;
  constexpr std::int64_t kMaxDelay_ns = 5'000'000;
  launch<Delay>(std::min(launches * kQueueing_ns, kMaxDelay_ns), 1, 1, 0, queue);
}

double now_s() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Returns whether there was enough memory. Throws DeviceError if an allocation failed for another
// reason.
bool allocated(cudaError_t status) {
  if (status != cudaErrorMemoryAllocation) check(status, "allocating memory");
  return succeeded(status);
}

void wait(cudaStream_t queue) { check(cudaStreamSynchronize(queue), "waiting for a device"); }

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "creating an event"); }
  ~Event() { succeeded(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t queue) { check(cudaEventRecord(event_, queue), "recording an event"); }
  // Seconds from another event to this one; both must have completed.
  double seconds_since(const Event& from) const {
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, from.event_, event_), "reading an event");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// The launches by `start`, captured as one graph and uploaded to the device.
class Graph {
 public:
  template <class Start>
  Graph(cudaStream_t queue, const Start& start) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "beginning a graph");
    try {
      start();
    } catch (...) {
      succeeded(cudaStreamEndCapture(queue, &graph));
      if (graph != nullptr) succeeded(cudaGraphDestroy(graph));
      throw;
    }
    check(cudaStreamEndCapture(queue, &graph), "ending a graph");
    const cudaError_t made = cudaGraphInstantiateWithFlags(&ready_, graph, 0);
    succeeded(cudaGraphDestroy(graph));
    check(made, "instantiating a graph");
    const cudaError_t uploaded = cudaGraphUpload(ready_, queue);
    if (uploaded != cudaSuccess) succeeded(cudaGraphExecDestroy(ready_));
    check(uploaded, "uploading a graph");
  }
  ~Graph() { succeeded(cudaGraphExecDestroy(ready_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t queue) { check(cudaGraphLaunch(ready_, queue), "launching a graph"); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

// Steps on a device. Their kernels are loaded here, not during timing or capture.
class Steps : public Sequence {
 public:
  Steps(int device, cudaStream_t queue, std::vector<DeviceStep> steps)
      : queue_(queue), steps_(std::move(steps)), device_(device) {
    use();
    for (const DeviceStep& step : steps_) start(step, nullptr);
  }

 protected:
  void use() const { check(cudaSetDevice(device_), "selecting a device"); }
  void start(const DeviceStep& step) const { start(step, queue_); }
  void start(std::int64_t times) const {
    for (std::int64_t k = 0; k < times; ++k) {
      for (const DeviceStep& step : steps_) start(step);
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(steps_.size()); }

  cudaStream_t queue_;
  std::vector<DeviceStep> steps_;

 private:
  // Without a queue, loads the kernels.
  static void start(const DeviceStep& step, cudaStream_t queue) {
    struct Further {
      explicit Further(int bytes) { gpu::further_shared_B() = static_cast<std::size_t>(bytes); }
      ~Further() { gpu::further_shared_B() = 0; }
      Further(const Further&) = delete;
      Further& operator=(const Further&) = delete;
    };
    const Further further(step.shared_B);
    step.launch(step.args, step.range, step.threads, queue);
  }

  int device_;
};

class ByHost : public Steps {
 public:
  ByHost(int device, cudaStream_t queue, std::vector<DeviceStep> steps)
      : Steps(device, queue, std::move(steps)) {
    prepare();
  }
  double sample(std::int64_t invocations, double* per_step) override {
    use();
    prepare();
    wait(queue_);
    const double begin = now_s();
    double last = begin;
    if (per_step == nullptr) {
      start(invocations);
    } else {
      for (std::int64_t k = 0; k < invocations; ++k) {
        for (std::size_t s = 0; s < steps_.size(); ++s) {
          start(steps_[s]);
          wait(queue_);
          const double end = now_s();
          per_step[s] += end - last;
          last = end;
        }
      }
    }
    wait(queue_);
    return now_s() - begin;
  }

 private:
  void prepare() const {
    for (const DeviceStep& step : steps_) {
      if (step.prepare != nullptr) step.prepare(step.args, step.range, step.threads, queue_);
    }
  }
};

class ByEvents : public Steps {
 public:
  using Steps::Steps;
  double sample(std::int64_t invocations, double* per_step) override {
    use();
    if (per_step != nullptr) return by_step(invocations, per_step);
    begin(invocations * size(), 2);
    events_[0]->record(queue_);
    start(invocations);
    events_[1]->record(queue_);
    wait(queue_);
    return events_[1]->seconds_since(*events_[0]);
  }

 private:
  // Launches and events that are queued at once.
  static constexpr std::int64_t kMost = 256;

  void begin(std::int64_t launches, std::size_t events) {
    while (events_.size() < events) events_.push_back(std::make_unique<Event>());
    wait(queue_);
    delay(queue_, 2 + launches);
  }

  double by_step(std::int64_t invocations, double* per_step) {
    const std::int64_t each = std::max<std::int64_t>(kMost / size(), 1);
    double all = 0.0;
    for (std::int64_t done = 0; done < invocations; done += each) {
      const auto launches = static_cast<std::size_t>(std::min(each, invocations - done) * size());
      begin(static_cast<std::int64_t>(launches), launches + 1);
      events_[0]->record(queue_);
      for (std::size_t k = 0; k < launches; ++k) {
        start(steps_[k % steps_.size()]);
        events_[k + 1]->record(queue_);
      }
      wait(queue_);
      for (std::size_t k = 0; k < launches; ++k) {
        const double seconds = events_[k + 1]->seconds_since(*events_[k]);
        per_step[k % steps_.size()] += seconds;
        all += seconds;
      }
    }
    return all;
  }

  std::vector<std::unique_ptr<Event>> events_;
};

class ByGraph : public Steps {
 public:
  using Steps::Steps;
  double sample(std::int64_t invocations, double*) override {
    use();
    const std::int64_t each = std::min(invocations, kGraph);
    Graph& whole = of(each);
    Graph* rest = invocations % each == 0 ? nullptr : &of(invocations % each);
    wait(queue_);
    const double begin = now_s();
    for (std::int64_t k = 0; k < invocations / each; ++k) whole.launch(queue_);
    if (rest != nullptr) rest->launch(queue_);
    wait(queue_);
    return now_s() - begin;
  }

 private:
  // At most kGraph of them.
  Graph& of(std::int64_t invocations) {
    auto& graph = graphs_[invocations];
    if (graph == nullptr) graph = std::make_unique<Graph>(queue_, [&] { start(invocations); });
    return *graph;
  }
  std::map<std::int64_t, std::unique_ptr<Graph>> graphs_;
};

// Memory of the host for copies of a device.
class HostMemory : public DeviceMemory {
 public:
  HostMemory(std::string name, int device) : name_(std::move(name)), device_(device) {}

  const std::string& name() const override { return name_; }
  std::int64_t free_B() const override { return memory_limit().available_B; }

  std::byte* allocate(std::int64_t bytes) override {
    check(cudaSetDevice(device_), "selecting a device");
    constexpr std::size_t kAlign = 4096;
    const auto size = static_cast<std::size_t>(bytes);
    void* data = nullptr;
    if (name_ == "pageable") {
      data = std::aligned_alloc(kAlign, (size + kAlign - 1) / kAlign * kAlign);
    } else {
      if (name_ == "managed") check_managed();
      const cudaError_t status =
          name_ == "managed" ? cudaMallocManaged(&data, size) : cudaHostAlloc(&data, size, 0);
      if (!allocated(status)) data = nullptr;
    }
    if (data == nullptr) {
      throw MemoryError("no " + name_ + " buffer of " + std::to_string(bytes) + " bytes");
    }
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data) noexcept override {
    if (name_ == "pageable") std::free(data);
    if (!succeeded(cudaSetDevice(device_))) return;
    if (name_ == "managed") succeeded(cudaFree(data));
    if (name_ == "pinned") succeeded(cudaFreeHost(data));
  }
  void write(std::byte* to, const void* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) const override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void fill(const char* dtype, std::byte* data, std::int64_t rows, std::int64_t columns,
            std::uint32_t salt) override {
    with_fill(dtype, [&](auto kernel) {
      Nothing locals;
      kernel.template run<0>({data, rows, columns, salt}, Thread{0, 1, 0, 1}, locals, nullptr);
    });
  }

 private:
  void check_managed() const {
    const auto is = [&](cudaDeviceAttr what) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, what, device_), "querying a device's managed memory");
      return value != 0;
    };
    if (is(cudaDevAttrConcurrentManagedAccess) &&
        !is(cudaDevAttrPageableMemoryAccessUsesHostPageTables)) {
      return;
    }
    throw InputError("managed memory does not move between this host and cuda:" +
                     std::to_string(device_) + ": use pageable or pinned memory");
  }

  std::string name_;
  int device_;
};

// Occupies its device (which needs device memory, and may fail) only at the first use.
class CudaDevice : public Device {
 public:
  explicit CudaDevice(int number)
      : number_(number), name_("cuda:" + std::to_string(number)), about_(describe(number)) {}

  const std::string& name() const override { return name_; }
  const std::string& isa() const override { return about_.isa; }
  int units() const override { return about_.units; }
  int max_threads() const override { return about_.max_threads; }
  const std::vector<DeviceEntry>& entries() const override { return gpu::entries(); }

  std::int64_t free_B() const override {
    use();
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "querying free memory");
    return static_cast<std::int64_t>(free);
  }

  std::byte* allocate(std::int64_t bytes) override {
    use();
    void* data = nullptr;
    if (!allocated(cudaMalloc(&data, static_cast<std::size_t>(bytes)))) {
      throw MemoryError(name_ + " refused a buffer of " + std::to_string(bytes) + " bytes");
    }
    return static_cast<std::byte*>(data);
  }

  void release(std::byte* data) noexcept override {
    // At the end of the process the CUDA runtime may already have been unloaded.
    if (succeeded(cudaSetDevice(number_))) succeeded(cudaFree(data));
  }

  void write(std::byte* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) const override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }

  void fill(const char* dtype, std::byte* data, std::int64_t rows, std::int64_t columns,
            std::uint32_t salt) override {
    const std::int64_t blocks = std::min(blocks_for(rows * columns, kThreads), kMaxFillBlocks);
    with_fill(dtype, [&](auto kernel) {
      launch<decltype(kernel)>({data, rows, columns, salt}, blocks, kThreads, 0, queue());
    });
    wait(queue_);
  }

  DeviceMemory& other(const std::string& memory) override {
    if (memory == name_)
      throw InputError("a transfer to another device than " + name_ + " needs two devices");
    if (memory.rfind("cuda:", 0) == 0) return cuda::device(std::stoi(memory.substr(5)));
    auto& known = host_[memory];
    if (known == nullptr) known = std::make_unique<HostMemory>(memory, number_);
    return *known;
  }

  std::unique_ptr<Sequence> prepare(const std::vector<DeviceStep>& steps, Timer timer) override {
    if (timer == Timer::Events) return std::make_unique<ByEvents>(number_, queue(), steps);
    if (timer == Timer::Graph) return std::make_unique<ByGraph>(number_, queue(), steps);
    return std::make_unique<ByHost>(number_, queue(), steps);
  }

  double sample(const std::vector<DeviceStep>& steps, std::int64_t invocations, Timer timer,
                double* per_step) override {
    return prepare(steps, timer)->sample(invocations, per_step);
  }

  double copy_s(std::int64_t bytes, int times, double warm_s) {
    Buffer from(*this, bytes);
    Buffer to(*this, bytes);
    Event begin;
    Event end;
    const auto copy_once = [&] {
      // The copy and its events.
      delay(queue(), 3);
      begin.record(queue_);
      check(cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(bytes),
                            cudaMemcpyDeviceToDevice, queue_),
            "copying");
      end.record(queue_);
      wait(queue_);
      return end.seconds_since(begin);
    };
    const double warm = now_s() + warm_s;
    do {
      copy_once();
    } while (now_s() < warm);
    std::vector<double> seconds;
    for (int k = 0; k < times; ++k) seconds.push_back(copy_once());
    const auto middle = seconds.begin() + times / 2;
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
  }

  std::int64_t cache_B() const override { return about_.l2_B; }

  void flush(std::byte* written, std::byte* read, std::int64_t bytes) override {
    const auto size = static_cast<std::size_t>(bytes);
    check(cudaMemsetAsync(written, ++flushes_ % 128, size, queue()), "flushing the caches");
    const ReadArgs args{reinterpret_cast<const std::uint64_t*>(read),
                        reinterpret_cast<std::uint64_t*>(written), bytes / 8};
    launch<Read>(args, std::min(blocks_for(args.count, kThreads), kMaxFillBlocks), kThreads, 0,
                 queue_);
    wait(queue_);
  }

 private:
  static constexpr std::int64_t kMaxFillBlocks = 65536;

  struct Buffer {
    Buffer(CudaDevice& owner, std::int64_t bytes) : device(owner), data(owner.allocate(bytes)) {}
    ~Buffer() { device.release(data); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    CudaDevice& device;
    std::byte* data;
  };

  void use() const { check(cudaSetDevice(number_), ("using " + name_).c_str()); }
  // The queue of all work, with the device in use.
  cudaStream_t queue() const {
    use();
    if (queue_ == nullptr) {
      check(cudaStreamCreateWithFlags(&queue_, cudaStreamNonBlocking), "creating a stream");
    }
    return queue_;
  }

  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind way) const {
    if (bytes == 0) return;
    // In the queue of the kernels: a copy from pageable memory may return before it is complete.
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), way, queue()), "copying");
    wait(queue_);
  }

  int number_;
  std::string name_;
  Description about_;
  mutable cudaStream_t queue_ = nullptr;
  std::map<std::string, std::unique_ptr<HostMemory>> host_;
  int flushes_ = 0;
};

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (!succeeded(status) || count == 0) {
    throw DeviceError(std::string("there is no CUDA device: ") +
                      (status == cudaSuccess ? "none is visible" : cudaGetErrorString(status)));
  }
  return count;
}

static void check_number(int number) {
  const int count = device_count();
  if (number >= 0 && number < count) return;
  throw InputError("device cuda:" + std::to_string(number) +
                   " is not one of cuda:0 to cuda:" + std::to_string(count - 1));
}

static CudaDevice& cuda_device(int number) {
  check_number(number);
  // Never destroyed: buffers are released to the devices until the process ends.
  static auto* all = new std::map<int, std::unique_ptr<CudaDevice>>;
  auto& slot = (*all)[number];
  if (slot == nullptr) slot = std::make_unique<CudaDevice>(number);
  return *slot;
}

Device& device(int number) { return cuda_device(number); }

Description describe(int number) {
  check_number(number);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, number), "querying the properties of a device");
  Description d{};
  d.name = properties.name;
  char bus[32] = "";
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, number), "querying the PCI bus id of a device");
  d.bus = bus;
  d.isa = "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
  d.memory_B = static_cast<std::int64_t>(properties.totalGlobalMem);
  d.l2_B = properties.l2CacheSize;
  d.units = properties.multiProcessorCount;
  d.max_threads = properties.maxThreadsPerBlock;
  d.ecc = properties.ECCEnabled != 0;
  int clock_kHz = 0;
  int bus_bits = 0;
  check(cudaDeviceGetAttribute(&clock_kHz, cudaDevAttrMemoryClockRate, number),
        "querying the clock of a device's memory");
  check(cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, number),
        "querying the width of a device's memory bus");
  d.peak_Bps = 2e3 * clock_kHz * bus_bits / 8;
  check(cudaDriverGetVersion(&d.driver), "querying the driver version");
  check(cudaRuntimeGetVersion(&d.runtime), "querying the runtime version");
  return d;
}

bool reaches(int number, int peer) {
  check_number(number);
  check_number(peer);
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, number, peer), "querying access to a device");
  return can != 0;
}

double copy_s(int number, std::int64_t bytes, int times, double warm_s) {
  if (bytes < 1 || times < 1) throw InputError("bytes and times must be at least 1");
  return cuda_device(number).copy_s(bytes, times, warm_s);
}

}  // namespace memkern::cuda
