#include "backends/cuda/device.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "core/errors.hpp"
#include "gpu/grid.hpp"
#include "gpu/registry.hpp"

namespace memkern::cuda {
namespace {

using gpu::blocks_for;
using gpu::check;
using gpu::launch;
using gpu::Nothing;
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
struct Fill {
  using Args = FillArgs;
  using Locals = Nothing;
  static constexpr int kPhases = 1;
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

double now_s() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "creating an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t queue) { check(cudaEventRecord(event_, queue), "recording an event"); }
  // Seconds from another event to this one.
  double seconds_since(const Event& from) const {
    check(cudaEventSynchronize(event_), "waiting for an event");
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, from.event_, event_), "reading an event");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// The launches that `start` makes, captured to be launched at once.
class Graph {
 public:
  template <class Start>
  Graph(cudaStream_t queue, const Start& start) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "beginning a graph");
    start();
    check(cudaStreamEndCapture(queue, &graph), "ending a graph");
    const cudaError_t made = cudaGraphInstantiateWithFlags(&ready_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "instantiating a graph");
  }
  ~Graph() { cudaGraphExecDestroy(ready_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t queue) { check(cudaGraphLaunch(ready_, queue), "launching a graph"); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int number)
      : number_(number), name_("cuda:" + std::to_string(number)), about_(describe(number)) {
    use();
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, number), "querying the properties of a device");
    max_threads_ = properties.maxThreadsPerBlock;
    check(cudaStreamCreateWithFlags(&queue_, cudaStreamNonBlocking), "creating a stream");
  }

  const std::string& name() const override { return name_; }
  const std::string& isa() const override { return about_.isa; }
  int units() const override { return about_.units; }
  int max_threads() const override { return max_threads_; }
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
    if (cudaMalloc(&data, static_cast<std::size_t>(bytes)) != cudaSuccess) {
      cudaGetLastError();
      throw MemoryError(name_ + " refused a buffer of " + std::to_string(bytes) + " bytes");
    }
    return static_cast<std::byte*>(data);
  }

  void release(std::byte* data) noexcept override {
    // At the end of the process the CUDA runtime may already have been unloaded.
    if (cudaSetDevice(number_) == cudaSuccess) cudaFree(data);
  }

  void write(std::byte* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) const override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }

  void fill(const char* dtype, std::byte* data, std::int64_t rows, std::int64_t columns,
            std::uint32_t salt) override {
    use();
    const std::string type = dtype;
    const FillArgs args{data, rows, columns, salt};
    const std::int64_t blocks = std::min(blocks_for(rows * columns, kThreads), kMaxFillBlocks);
    if (type == "float64") launch<Fill<double>>(args, blocks, kThreads, 0, queue_);
    if (type == "float32") launch<Fill<float>>(args, blocks, kThreads, 0, queue_);
    if (type == "int64") launch<Fill<std::int64_t>>(args, blocks, kThreads, 0, queue_);
    if (type == "int32") launch<Fill<std::int32_t>>(args, blocks, kThreads, 0, queue_);
    if (type == "uint64") launch<Fill<std::uint64_t>>(args, blocks, kThreads, 0, queue_);
    if (type == "uint32") launch<Fill<std::uint32_t>>(args, blocks, kThreads, 0, queue_);
    wait();
  }

  double sample(const std::vector<DeviceStep>& steps, std::int64_t invocations, Timer timer,
                double* per_step) override {
    use();
    if (timer == Timer::Events) return by_events(steps, invocations, per_step);
    if (timer == Timer::Graph && per_step == nullptr) return by_graph(steps, invocations);
    wait();
    const double begin = now_s();
    double last = begin;
    for (std::int64_t k = 0; k < invocations; ++k) {
      for (std::size_t s = 0; s < steps.size(); ++s) {
        start(steps[s]);
        if (per_step == nullptr) continue;
        wait();
        const double end = now_s();
        per_step[s] += end - last;
        last = end;
      }
    }
    wait();
    return now_s() - begin;
  }

  double copy_s(std::int64_t bytes, int times) {
    use();
    Buffer from(*this, bytes);
    Buffer to(*this, bytes);
    double shortest = 0.0;
    // The first copy warms up the device and does not count.
    for (int k = 0; k <= times; ++k) {
      Event begin;
      Event end;
      begin.record(queue_);
      check(cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(bytes),
                            cudaMemcpyDeviceToDevice, queue_),
            "copying");
      end.record(queue_);
      const double seconds = end.seconds_since(begin);
      if (k == 1 || (k > 1 && seconds < shortest)) shortest = seconds;
    }
    return shortest;
  }

  void flush() override {
    use();
    const auto bytes = static_cast<std::size_t>(2 * std::max<std::int64_t>(about_.l2_B, 1 << 20));
    if (flushed_ == nullptr) flushed_ = allocate(static_cast<std::int64_t>(bytes));
    check(cudaMemsetAsync(flushed_, ++flushes_ % 256, bytes, queue_), "flushing the caches");
    wait();
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

  void use() const { check(cudaSetDevice(number_), "selecting a device"); }
  void wait() const { check(cudaStreamSynchronize(queue_), "waiting for a device"); }

  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind way) const {
    if (bytes == 0) return;
    use();
    // In the queue of the kernels: a copy from pageable memory may return before it is complete.
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), way, queue_), "copying");
    wait();
  }

  void start(const DeviceStep& step) { step.launch(step.args, step.range, step.threads, queue_); }
  void start(const std::vector<DeviceStep>& steps, std::int64_t times) {
    for (std::int64_t k = 0; k < times; ++k) {
      for (const DeviceStep& step : steps) start(step);
    }
  }

  double by_events(const std::vector<DeviceStep>& steps, std::int64_t invocations,
                   double* per_step) {
    Event begin;
    begin.record(queue_);
    if (per_step == nullptr) {
      start(steps, invocations);
      Event end;
      end.record(queue_);
      return end.seconds_since(begin);
    }
    double all = 0.0;
    for (std::int64_t k = 0; k < invocations; ++k) {
      for (std::size_t s = 0; s < steps.size(); ++s) {
        Event from;
        Event to;
        from.record(queue_);
        start(steps[s]);
        to.record(queue_);
        const double seconds = to.seconds_since(from);
        per_step[s] += seconds;
        all += seconds;
      }
    }
    return all;
  }

  double by_graph(const std::vector<DeviceStep>& steps, std::int64_t invocations) {
    const std::int64_t each = std::min(invocations, kGraph);
    const std::int64_t left = invocations % each;
    Graph whole(queue_, [&] { start(steps, each); });
    std::optional<Graph> rest;
    if (left != 0) rest.emplace(queue_, [&] { start(steps, left); });
    wait();
    const double begin = now_s();
    for (std::int64_t k = 0; k < invocations / each; ++k) whole.launch(queue_);
    if (rest) rest->launch(queue_);
    wait();
    return now_s() - begin;
  }

  int number_;
  std::string name_;
  Description about_;
  int max_threads_ = 0;
  cudaStream_t queue_ = nullptr;
  std::byte* flushed_ = nullptr;
  int flushes_ = 0;
};

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw DeviceError(std::string("there is no CUDA device: ") +
                      (status == cudaSuccess ? "none is visible" : cudaGetErrorString(status)));
  }
  return count;
}

static CudaDevice& cuda_device(int number) {
  const int count = device_count();
  if (number < 0 || number >= count) {
    throw InputError("device cuda:" + std::to_string(number) +
                     " is not one of cuda:0 to cuda:" + std::to_string(count - 1));
  }
  // Never destroyed: buffers are released to the devices until the process ends.
  static auto* all = new std::vector<std::unique_ptr<CudaDevice>>;
  all->resize(static_cast<std::size_t>(count));
  auto& slot = (*all)[static_cast<std::size_t>(number)];
  if (slot == nullptr) slot = std::make_unique<CudaDevice>(number);
  return *slot;
}

Device& device(int number) { return cuda_device(number); }

Description describe(int number) {
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
  check(cudaDriverGetVersion(&d.driver), "querying the driver version");
  check(cudaRuntimeGetVersion(&d.runtime), "querying the runtime version");
  return d;
}

double copy_s(int number, std::int64_t bytes, int times) {
  if (bytes < 1 || times < 1) throw InputError("bytes and times must be at least 1");
  return cuda_device(number).copy_s(bytes, times);
}

}  // namespace memkern::cuda
