// Transfers between a host and a GPU, and between two GPUs: copies by the runtime, and pages of
// managed memory that move when they are read, or before. They complete in the queue of the device
// or before the launch returns, so that the host can time them.
#include <map>

#include "families/transfers/args.hpp"
#include "gpu/grid.hpp"
#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

constexpr int kThreads = 256;

enum class Way { ToDevice, FromDevice, Both };
enum class How { Copy, Touch, Prefetch };

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "querying the device in use");
  return device;
}

// A second queue of the device in use, for the other direction.
cudaStream_t second_queue() {
  static auto* all = new std::map<int, cudaStream_t>;
  cudaStream_t& queue = (*all)[current_device()];
  if (queue == nullptr) {
    check(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking), "creating a stream");
  }
  return queue;
}

void wait(cudaStream_t queue) { check(cudaStreamSynchronize(queue), "waiting for a device"); }

struct TouchArgs {
  Transfer transfer;
  std::int64_t bytes;
};

// Reads the first word of every page.
struct Touch : Stateless<TouchArgs> {
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& args, const Thread& thread, Locals&,
                                   unsigned char*) {
    const std::int64_t pages = (args.bytes + TransfersArgs::kPage_B - 1) / TransfersArgs::kPage_B;
    auto* to = reinterpret_cast<std::uint64_t*>(args.transfer.target);
    for (std::int64_t page = thread.index(); page < pages; page += thread.total()) {
      to[page] = *reinterpret_cast<const std::uint64_t*>(args.transfer.source +
                                                         page * TransfersArgs::kPage_B);
    }
  }
};

void touch_on_device(const TouchArgs& args, int threads, void* queue) {
  const std::int64_t pages = (args.bytes + TransfersArgs::kPage_B - 1) / TransfersArgs::kPage_B;
  launch<Touch>(args, blocks_for(pages, threads), threads, 0, queue);
}

void touch_on_host(const TouchArgs& args) {
  Nothing locals;
  Touch::run<0>(args, Thread{0, 1, 0, 1}, locals, nullptr);
}

enum class Place { Host, Device };

// Moves pages of managed memory.
void prefetch(const std::byte* at, std::int64_t bytes, Place to, cudaStream_t queue) {
  const auto size = static_cast<std::size_t>(bytes);
#if CUDART_VERSION >= 13000
  cudaMemLocation location{};
  location.type = to == Place::Host ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = to == Place::Host ? 0 : current_device();
  const cudaError_t status = cudaMemPrefetchAsync(at, size, location, 0, queue);
#else
  const int location = to == Place::Host ? cudaCpuDeviceId : current_device();
  const cudaError_t status = cudaMemPrefetchAsync(at, size, location, queue);
#endif
  check(status, "moving managed memory");
}

void copy(const TouchArgs& args, cudaMemcpyKind kind, cudaStream_t queue) {
  check(cudaMemcpyAsync(args.transfer.target, args.transfer.source,
                        static_cast<std::size_t>(args.bytes), kind, queue),
        "copying");
}

template <How kHow>
void to_device(const TouchArgs& args, int threads, cudaStream_t queue) {
  if constexpr (kHow == How::Copy) {
    copy(args, cudaMemcpyHostToDevice, queue);
  } else {
    if (kHow == How::Prefetch) prefetch(args.transfer.source, args.bytes, Place::Device, queue);
    touch_on_device(args, threads, queue);
  }
}

// Complete when it returns.
template <How kHow>
void from_device(const TouchArgs& args, cudaStream_t queue) {
  if constexpr (kHow == How::Copy) {
    copy(args, cudaMemcpyDeviceToHost, queue);
    wait(queue);
  } else {
    if constexpr (kHow == How::Prefetch) {
      prefetch(args.transfer.source, args.bytes, Place::Host, queue);
      wait(queue);
    }
    touch_on_host(args);
  }
}

template <Way kWay, How kHow>
void start(const void* p, Range, int threads, void* queue) {
  const auto& a = *static_cast<const TransfersArgs*>(p);
  auto* stream = static_cast<cudaStream_t>(queue);
  if (stream == nullptr) {
    second_queue();
    if (kHow != How::Copy) touch_on_device({}, threads, nullptr);
    return;
  }
  if constexpr (kWay != Way::FromDevice) to_device<kHow>({a.to_device, a.bytes}, threads, stream);
  if constexpr (kWay != Way::ToDevice) {
    from_device<kHow>({a.from_device, a.bytes}, kWay == Way::Both ? second_queue() : stream);
  }
}

// Moves managed memory to its location before a transfer.
template <Way kWay>
void move_back(const void* p, Range, int, void* queue) {
  const auto& a = *static_cast<const TransfersArgs*>(p);
  auto* stream = static_cast<cudaStream_t>(queue);
  if (kWay != Way::FromDevice) prefetch(a.to_device.source, a.bytes, Place::Host, stream);
  if (kWay != Way::ToDevice) prefetch(a.from_device.source, a.bytes, Place::Device, stream);
}

void between(const void* p, Range, int, void* queue) {
  if (queue == nullptr) return;
  const auto& a = *static_cast<const TransfersArgs*>(p);
  check(cudaMemcpyPeerAsync(a.to_device.target, a.peer, a.to_device.source, current_device(),
                            static_cast<std::size_t>(a.bytes), static_cast<cudaStream_t>(queue)),
        "copying to another device");
}

// Whether a copy between two devices may go directly from one to the other.
template <bool kDirect>
void set_access(const void* p, Range, int, void*) {
  const int peer = static_cast<const TransfersArgs*>(p)->peer;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, current_device(), peer), "querying access to a device");
  if (can == 0) {
    if (!kDirect) return;
    throw InputError("cuda:" + std::to_string(current_device()) + " has no direct access to cuda:" +
                     std::to_string(peer) + ": use variant staged");
  }
  const cudaError_t status =
      kDirect ? cudaDeviceEnablePeerAccess(peer, 0) : cudaDeviceDisablePeerAccess(peer);
  if (succeeded(status) || status == cudaErrorPeerAccessAlreadyEnabled ||
      status == cudaErrorPeerAccessNotEnabled) {
    return;
  }
  check(status, "setting access to a device");
}

// clang-format off
#define MEMKERN_TRANSFER(name, way)                                                              \
  {{name, "copy", "uint64", "", nullptr, nullptr, 0, 0, "pageable"}, start<way, How::Copy>},     \
  {{name, "copy", "uint64", "", nullptr, nullptr, 0, 0, "pinned"}, start<way, How::Copy>},       \
  {{name, "touch", "uint64", "", nullptr, nullptr, 0, 0, "managed"}, start<way, How::Touch>, 0,  \
   move_back<way>},                                                                              \
  {{name, "prefetch", "uint64", "", nullptr, nullptr, 0, 0, "managed"},                          \
   start<way, How::Prefetch>, 0, move_back<way>},

const TableRegistrar registrar({
    MEMKERN_TRANSFER("transfers.to_device", Way::ToDevice)
    MEMKERN_TRANSFER("transfers.from_device", Way::FromDevice)
    MEMKERN_TRANSFER("transfers.both", Way::Both)
    {{"transfers.between", "direct", "uint64", "", nullptr, nullptr, 0, 0, "device"}, between, 0,
     set_access<true>},
    {{"transfers.between", "staged", "uint64", "", nullptr, nullptr, 0, 0, "device"}, between, 0,
     set_access<false>},
}, kThreads);
// clang-format on

}  // namespace
}  // namespace memkern::gpu
