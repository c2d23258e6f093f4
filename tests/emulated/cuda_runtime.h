// Replaces CUDA's header in tests without CUDA: device memory is memory of the process, launches
// are complete when the call returns, and a graph is a list of functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
constexpr unsigned cudaStreamNonBlocking = 1;

namespace emulated {

using Work = std::function<void()>;
struct Graph {
  std::vector<Work> all;
};
struct Stream {
  Graph* captured = nullptr;
};
struct Event {
  double at_ms = 0.0;
};
inline double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}
// All allocations with their sizes: only these may be freed, read and written.
inline std::map<std::byte*, std::size_t>& allocations() {
  static auto* all = new std::map<std::byte*, std::size_t>;
  return *all;
}
inline std::size_t allocated() {
  std::size_t sum = 0;
  for (const auto& [at, size] : allocations()) sum += size;
  return sum;
}
inline bool holds(const void* at, std::size_t size) {
  auto* byte = static_cast<std::byte*>(const_cast<void*>(at));
  auto found = allocations().upper_bound(byte);
  if (found == allocations().begin()) return size == 0;
  --found;
  return byte + size <= found->first + found->second;
}
constexpr std::size_t kMemory = std::size_t{1} << 31;

}  // namespace emulated

using cudaStream_t = emulated::Stream*;
using cudaEvent_t = emulated::Event*;
using cudaGraph_t = emulated::Graph*;
using cudaGraphExec_t = emulated::Graph*;

struct cudaDeviceProp {
  char name[256] = "Emulated";
  std::size_t totalGlobalMem = emulated::kMemory;
  std::size_t sharedMemPerBlock = 49152;
  int major = 0;
  int minor = 0;
  int multiProcessorCount = 3;
  int maxThreadsPerBlock = 1024;
  int l2CacheSize = 1 << 20;
};

inline const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" : "bad";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDevice(int d) { return d == 0 ? cudaSuccess : cudaErrorInvalidValue; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* to, int size, int) {
  return std::strncpy(to, "0000:00:00.0", static_cast<std::size_t>(size)), cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* v) { return *v = 0, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* v) { return *v = 0, cudaSuccess; }
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = emulated::kMemory - emulated::allocated();
  *total = emulated::kMemory;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** at, std::size_t size) {
  *at = nullptr;
  if (emulated::allocated() + size > emulated::kMemory) return cudaErrorMemoryAllocation;
  *at = std::aligned_alloc(256, (size + 255) / 256 * 256);
  if (*at == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*at, 0xA5, size);
  emulated::allocations()[static_cast<std::byte*>(*at)] = size;
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* at) {
  if (emulated::allocations().erase(static_cast<std::byte*>(at)) != 1) return cudaErrorInvalidValue;
  std::free(at);
  return cudaSuccess;
}
template <class F>
void emulated_launch(cudaStream_t stream, const F& work) {
  if (stream->captured != nullptr) {
    stream->captured->all.emplace_back(work);
  } else {
    work();
  }
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
  if ((kind != cudaMemcpyDeviceToHost && !emulated::holds(to, size)) ||
      (kind != cudaMemcpyHostToDevice && !emulated::holds(from, size))) {
    return cudaErrorInvalidValue;
  }
  emulated_launch(stream, [=] { std::memcpy(to, from, size); });
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t stream) {
  if (!emulated::holds(to, size)) return cudaErrorInvalidValue;
  emulated_launch(stream, [=] { std::memset(to, value, size); });
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  return *s = new emulated::Stream, cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = new emulated::Event, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) {
  return e->at_ms = emulated::now_ms(), cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return *ms = static_cast<float>(to->at_ms - from->at_ms), cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  return s->captured = new emulated::Graph, cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  *g = s->captured;
  s->captured = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g,
                                                 unsigned long long) {
  return *e = new emulated::Graph(*g), cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t) {
  for (const auto& work : e->all) work();
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { return delete e, cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t g) { return delete g, cudaSuccess; }
