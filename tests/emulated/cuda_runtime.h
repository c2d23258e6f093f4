// Replaces CUDA's header in tests without CUDA: device memory is memory of the process, launches
// are complete when the call returns, and a graph is a list of functions. A function whose name is
// in the environment variable MEMKERN_EMULATED_FAIL fails; functions that release a resource still
// release it, since any function of CUDA may report an error of earlier work.
#pragma once

#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "warp.h"

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDevice = 101,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorPeerAccessNotEnabled = 705,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorUnknown = 999
};
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
constexpr int kResidentBlocks = 6;  // at a time, of any kernel

// Whether a word is in an environment variable.
inline bool has(const char* variable, const char* function) {
  const char* names = std::getenv(variable);
  if (names == nullptr) return false;
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    if (word == function) return true;
  }
  return false;
}

inline bool fails(const char* function) { return has("MEMKERN_EMULATED_FAIL", function); }

inline int devices() {
  const char* number = std::getenv("MEMKERN_EMULATED_DEVICES");
  return number == nullptr ? 1 : std::atoi(number);
}
inline int& device_in_use() {
  static int device = 0;
  return device;
}
// The device of each allocation, the last location of managed memory (kHost or a device), and host
// memory that the runtime allocated.
constexpr int kHost = -1;
inline std::map<const void*, int>& owners() {
  static auto* all = new std::map<const void*, int>;
  return *all;
}
inline std::map<const void*, int>& managed() {
  static auto* all = new std::map<const void*, int>;
  return *all;
}
inline std::set<const void*>& pinned() {
  static auto* all = new std::set<const void*>;
  return *all;
}
inline bool& peer_access() {
  static bool enabled = false;
  return enabled;
}

// Numbers of calls since the start of the program.
struct Counts {
  int contexts = 0;  // see occupy()
  int copies = 0;
  int events = 0;   // created
  int graphs = 0;   // instantiated
  int uploads = 0;  // of graphs
  int prefetches = 0;
  // Of the last launch.
  std::int64_t blocks = 0;
  std::size_t shared_B = 0;
};
inline Counts& counts() {
  static Counts all;
  return all;
}
// Queued work in order, if a test provides a list for it.
struct Queued {
  std::string what;
  const Stream* stream;
};
inline std::vector<Queued>*& queued() {
  static std::vector<Queued>* list = nullptr;
  return list;
}
inline void note(const char* what, const Stream* stream) {
  if (queued() != nullptr) queued()->push_back({what, stream});
}
// The error of the last failed call, until it is read; later successful calls do not clear it.
inline cudaError_t& last_error() {
  static cudaError_t error = cudaSuccess;
  return error;
}
// The result of a call.
inline cudaError_t ended(cudaError_t status) {
  if (status != cudaSuccess) last_error() = status;
  return status;
}
// Begins a call that creates a context on the device in use, if there is none yet.
inline void occupy() { ++counts().contexts; }
// The same; returns whether the call fails.
inline bool occupies_and_fails(const char* function) { return occupy(), fails(function); }

// Loaded kernels by address, with the largest shared memory that their launches may request.
inline std::map<const void*, std::size_t>& loaded() {
  static auto* all = new std::map<const void*, std::size_t>;
  return *all;
}

}  // namespace emulated

using cudaStream_t = emulated::Stream*;
using cudaEvent_t = emulated::Event*;
using cudaGraph_t = emulated::Graph*;
using cudaGraphExec_t = emulated::Graph*;

struct cudaDeviceProp {
  char name[256] = "Emulated";
  std::size_t totalGlobalMem = emulated::kMemory;
  std::size_t sharedMemPerBlock = 49152;
  std::size_t sharedMemPerBlockOptin = 98304;
  int major = 0;
  int minor = 0;
  int multiProcessorCount = 3;
  int maxThreadsPerBlock = 1024;
  int l2CacheSize = 1 << 17;
  int ECCEnabled = 1;
};

inline const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorDevicesUnavailable: return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
    case cudaErrorPeerAccessNotEnabled: return "peer access has not been enabled";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error";
    case cudaErrorUnknown: break;
  }
  return "unknown error";
}
inline cudaError_t cudaGetLastError() { return std::exchange(emulated::last_error(), cudaSuccess); }
inline cudaError_t cudaGetDeviceCount(int* count) {
  return *count = emulated::devices(), cudaSuccess;
}
inline cudaError_t cudaSetDevice(int d) {
  if (emulated::occupies_and_fails("cudaSetDevice"))
    return emulated::ended(cudaErrorDevicesUnavailable);
  if (d < 0 || d >= emulated::devices()) return emulated::ended(cudaErrorInvalidDevice);
  return emulated::device_in_use() = d, cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* d) { return *d = emulated::device_in_use(), cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  if (emulated::fails("cudaGetDeviceProperties")) return emulated::ended(cudaErrorUnknown);
  *p = {};
  return cudaSuccess;
}
enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrMemoryClockRate,
  cudaDevAttrGlobalMemoryBusWidth,
  cudaDevAttrConcurrentManagedAccess,
  cudaDevAttrPageableMemoryAccessUsesHostPageTables
};
inline cudaError_t cudaDeviceGetAttribute(int* to, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *to = static_cast<int>(cudaDeviceProp().sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMemoryClockRate: *to = 1'000'000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *to = 1024; break;
    case cudaDevAttrConcurrentManagedAccess: *to = emulated::fails("managed") ? 0 : 1; break;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables: *to = 0; break;
  }
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* to, int size, int) {
  return std::strncpy(to, "0000:00:00.0", static_cast<std::size_t>(size)), cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* v) { return *v = 0, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* v) { return *v = 0, cudaSuccess; }
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  emulated::occupy();
  *free = emulated::kMemory - emulated::allocated();
  *total = emulated::kMemory;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** at, std::size_t size) {
  *at = nullptr;
  if (emulated::occupies_and_fails("cudaMalloc")) return emulated::ended(cudaErrorUnknown);
  if (emulated::allocated() + size > emulated::kMemory)
    return emulated::ended(cudaErrorMemoryAllocation);
  *at = std::aligned_alloc(256, (size + 255) / 256 * 256);
  if (*at == nullptr) return emulated::ended(cudaErrorMemoryAllocation);
  std::memset(*at, 0xA5, size);
  emulated::allocations()[static_cast<std::byte*>(*at)] = size;
  emulated::owners()[*at] = emulated::device_in_use();
  return cudaSuccess;
}
inline cudaError_t cudaMallocManaged(void** at, std::size_t size, unsigned = 1) {
  if (emulated::occupies_and_fails("cudaMallocManaged"))
    return emulated::ended(cudaErrorMemoryAllocation);
  const cudaError_t status = cudaMalloc(at, size);
  if (status == cudaSuccess) emulated::managed()[*at] = emulated::kHost;
  return status;
}
inline cudaError_t cudaHostAlloc(void** at, std::size_t size, unsigned) {
  if (emulated::occupies_and_fails("cudaHostAlloc"))
    return emulated::ended(cudaErrorMemoryAllocation);
  emulated::pinned().insert(*at = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* at) {
  const bool fails = emulated::occupies_and_fails("cudaFreeHost");
  if (emulated::pinned().erase(at) != 1) return emulated::ended(cudaErrorInvalidValue);
  std::free(at);
  return emulated::ended(fails ? cudaErrorUnknown : cudaSuccess);
}
inline cudaError_t cudaFree(void* at) {
  const bool fails = emulated::occupies_and_fails("cudaFree");
  emulated::owners().erase(at);
  emulated::managed().erase(at);
  if (emulated::allocations().erase(static_cast<std::byte*>(at)) != 1)
    return emulated::ended(cudaErrorInvalidValue);
  std::free(at);
  return emulated::ended(fails ? cudaErrorUnknown : cudaSuccess);
}
template <class F>
void emulated_queue(cudaStream_t stream, const F& work) {
  if (stream->captured != nullptr) {
    stream->captured->all.emplace_back(work);
  } else {
    work();
  }
}
inline cudaError_t emulated_load(const void* kernel) {
  if (emulated::occupies_and_fails("cudaFuncGetAttributes"))
    return emulated::ended(cudaErrorUnknown);
  emulated::loaded().emplace(kernel, cudaDeviceProp().sharedMemPerBlock);
  return cudaSuccess;
}
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
// Also possible for a kernel that is not loaded yet.
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int bytes) {
  emulated::occupy();
  const auto most = static_cast<std::size_t>(bytes);
  if (most > cudaDeviceProp().sharedMemPerBlockOptin) return emulated::ended(cudaErrorInvalidValue);
  emulated::loaded()[kernel] = most;
  return cudaSuccess;
}
namespace emulated {

struct Shape {
  std::int64_t blocks;
  int threads;
  std::size_t shared_B;
};

// Whether an address belongs to host memory. Kernels get their arguments by value, so that a
// pointer among them must point to device memory. Small values are assumed to be sizes: a program
// without randomized addresses, such as some interpreters of Python, has memory there, too.
inline bool is_of_host(std::uint64_t address) {
  constexpr std::uint64_t kPage = 4096;
  if (address >> 32 == 0 || address >> 47 != 0) return false;
  auto* byte = reinterpret_cast<std::byte*>(address);
  const auto next = allocations().upper_bound(byte);
  if (next != allocations().begin()) {
    const auto& [begin, size] = *std::prev(next);
    // The end of an allocation is valid as well.
    if (byte <= begin + size) return false;
  }
  return msync(reinterpret_cast<void*>(address / kPage * kPage), 1, MS_ASYNC) == 0;
}

// Padding in a kernel's arguments may look like pointers, so pointers are checked only with a
// compiler that can clear it.
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
constexpr bool kChecksPointers = true;
template <class Args>
void clear_padding(Args& args) {
  __builtin_clear_padding(&args);
}
#else
constexpr bool kChecksPointers = false;
template <class Args>
void clear_padding(Args&) {}
#endif

// The error of a launch as in CUDA, except that a pointer to host memory is detected at the launch.
inline cudaError_t refused(const void* kernel, const Shape& shape,
                           const std::vector<std::byte>& args) {
  constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 1;
  const cudaDeviceProp limits;
  if (shape.blocks < 1 || shape.blocks > kMaxBlocks || shape.threads < 1 ||
      shape.threads > limits.maxThreadsPerBlock) {
    return cudaErrorInvalidConfiguration;
  }
  const auto known = loaded().find(kernel);
  if (shape.shared_B > (known == loaded().end() ? limits.sharedMemPerBlock : known->second)) {
    return cudaErrorInvalidValue;
  }
  if (!kChecksPointers) return cudaSuccess;
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= args.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, args.data() + at, sizeof word);
    if (is_of_host(word)) return cudaErrorIllegalAddress;
  }
  return cudaSuccess;
}

// Numbers 0 to `count` - 1 in another order each time, unless MEMKERN_EMULATED_ORDER is
// "ascending": results must not depend on the order in which blocks and threads run.
class Shuffled {
 public:
  explicit Shuffled(std::int64_t count) : count_(count) {
    static std::uint64_t state = 1;
    static const char* order = std::getenv("MEMKERN_EMULATED_ORDER");
    if (order != nullptr && std::string(order) == "ascending") return;
    state = state * 6364136223846793005U + 1442695040888963407U;
    first_ = static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(count));
    step_ = 1 + static_cast<std::int64_t>((state >> 13) % 1021);
    while (std::gcd(step_, count) != 1) ++step_;
  }
  std::int64_t operator[](std::int64_t i) const { return (first_ + i % count_ * step_) % count_; }

 private:
  std::int64_t count_;
  std::int64_t first_ = 0;
  std::int64_t step_ = 1;
};

}  // namespace emulated

// A kernel cannot be loaded while launches are captured.
template <class F>
void emulated_launch(const void* kernel, const emulated::Shape& shape,
                     const std::vector<std::byte>& args, cudaStream_t stream, const F& work) {
  const bool loads = stream->captured != nullptr && emulated::loaded().count(kernel) == 0;
  const cudaError_t refused = emulated::refused(kernel, shape, args);
  if (emulated::occupies_and_fails("launch") || loads || refused != cudaSuccess) {
    emulated::ended(refused == cudaSuccess ? cudaErrorUnknown : refused);
    return;
  }
  emulated::note("launch", stream);
  emulated_queue(stream, work);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
  emulated::occupy();
  if ((kind != cudaMemcpyDeviceToHost && !emulated::holds(to, size)) ||
      (kind != cudaMemcpyHostToDevice && !emulated::holds(from, size))) {
    return emulated::ended(cudaErrorInvalidValue);
  }
  ++emulated::counts().copies;
  emulated::note("copy", stream);
  constexpr const char* kKinds[] = {"HostToDevice", "DeviceToHost", "DeviceToDevice"};
  const bool wrong = emulated::has("MEMKERN_EMULATED_WRONG", kKinds[kind]);
  const std::size_t copied = size - (wrong && size >= 8 ? 8 : 0);
  emulated_queue(stream, [=] { std::memcpy(to, from, copied); });
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                       std::size_t size, cudaStream_t stream) {
  const auto on = [](const void* at, int device) {
    const auto found = emulated::owners().find(at);
    return found != emulated::owners().end() && found->second == device;
  };
  if (!on(to, to_device) || !on(from, from_device)) return emulated::ended(cudaErrorInvalidValue);
  return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return *can = device != peer && !emulated::fails("peer") ? 1 : 0, cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  emulated::occupy();
  const bool before = std::exchange(emulated::peer_access(), true);
  return emulated::ended(before ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}
inline cudaError_t cudaDeviceDisablePeerAccess(int) {
  emulated::occupy();
  const bool before = std::exchange(emulated::peer_access(), false);
  return emulated::ended(before ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}
enum cudaMemLocationType { cudaMemLocationTypeDevice, cudaMemLocationTypeHost };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
inline cudaError_t cudaMemPrefetchAsync(const void* at, std::size_t size, cudaMemLocation to,
                                        unsigned, cudaStream_t stream) {
  emulated::occupy();
  const auto found = emulated::managed().find(at);
  if (found == emulated::managed().end() || !emulated::holds(at, size))
    return emulated::ended(cudaErrorInvalidValue);
  ++emulated::counts().prefetches;
  emulated::note("prefetch", stream);
  found->second = to.type == cudaMemLocationTypeHost ? emulated::kHost : to.id;
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t stream) {
  emulated::occupy();
  if (!emulated::holds(to, size)) return emulated::ended(cudaErrorInvalidValue);
  emulated_queue(stream, [=] { std::memset(to, value, size); });
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  emulated::occupy();
  return *s = new emulated::Stream, cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  emulated::occupy();
  return emulated::ended(s->captured == nullptr ? cudaSuccess : cudaErrorInvalidValue);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* e) {
  emulated::occupy();
  ++emulated::counts().events;
  return *e = new emulated::Event, cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return emulated::ended(emulated::occupies_and_fails("cudaEventDestroy") ? cudaErrorUnknown
                                                                          : cudaSuccess);
}
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  emulated::occupy();
  emulated::note("event", s);
  return e->at_ms = emulated::now_ms(), cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return emulated::occupy(), cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  emulated::occupy();
  return *ms = static_cast<float>(to->at_ms - from->at_ms), cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (emulated::occupies_and_fails("cudaStreamBeginCapture"))
    return emulated::ended(cudaErrorUnknown);
  if (s->captured != nullptr) return emulated::ended(cudaErrorInvalidValue);
  return s->captured = new emulated::Graph, cudaSuccess;
}
// Ends the capture in any case; a failed capture has no graph.
inline cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  *g = std::exchange(s->captured, nullptr);
  if (*g == nullptr) return emulated::ended(cudaErrorInvalidValue);
  if (!emulated::occupies_and_fails("cudaStreamEndCapture")) return cudaSuccess;
  delete std::exchange(*g, nullptr);
  return emulated::ended(cudaErrorStreamCaptureInvalidated);
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g,
                                                 unsigned long long) {
  if (emulated::occupies_and_fails("cudaGraphInstantiate"))
    return emulated::ended(cudaErrorUnknown);
  ++emulated::counts().graphs;
  return *e = new emulated::Graph(*g), cudaSuccess;
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  if (emulated::occupies_and_fails("cudaGraphUpload")) return emulated::ended(cudaErrorUnknown);
  return ++emulated::counts().uploads, cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t) {
  emulated::occupy();
  for (const auto& work : e->all) work();
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
  delete e;
  return emulated::ended(emulated::fails("cudaGraphExecDestroy") ? cudaErrorUnknown : cudaSuccess);
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete g;
  return emulated::ended(emulated::fails("cudaGraphDestroy") ? cudaErrorUnknown : cudaSuccess);
}
