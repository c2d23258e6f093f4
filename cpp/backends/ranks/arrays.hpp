// Arrays that are distributed over ranks: each rank owns a part, and all of them access it by the
// one-sided operations of a library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/ranks/meeting.hpp"
#include "core/body.hpp"
#include "core/device_memory.hpp"
#include "core/limits.hpp"

namespace memkern::ranks {

// A location: a library's memory, a rank, and a byte in the rank's part.
template <class Memory>
struct Place {
  const Memory* memory;
  int rank;
  std::int64_t at;
};

// The arrays of all ranks. Their addresses do not refer to memory: they consist of the array's
// number and a byte offset. Parts have equal length, except the last one, which is longer if the
// length of the array is not a multiple of the number of ranks. All ranks call all functions except
// `place_of` and `release` in the same order.
template <class L>
class Arrays {
 public:
  using Memory = typename L::Memory;

  // Uninitialised; throws MemoryError.
  std::byte* allocate(std::int64_t bytes) {
    // The library waits forever for a rank that does not call it, or that dies or is stopped in it.
    L::barrier();
    const Watched watched;
    free_released();
    const std::int64_t others = L::ranks() - 1;
    const std::int64_t share = std::max(bytes / (others + 1) / kWord_B * kWord_B, kWord_B);
    const std::int64_t most = std::max(bytes - others * share, share);
    check_shared_memory(most);
    const Memory memory = L::allocate(most);
    const auto reciprocal = static_cast<std::uint64_t>((Wide{1} << 64) / static_cast<Wide>(share));
    arrays_.push_back({memory, most, share, reciprocal, others, true, false});
    // Never dereferenced.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<std::byte*>(arrays_.size() << kNumberShift);
  }

  // It is freed when all ranks have released it, at the next allocation.
  void release(const std::byte* address) { arrays_[number_of(address)].released = true; }

  Place<Memory> place_of(const void* address) const {
    const Array& a = arrays_[number_of(address)];
    const auto byte = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) & kByte);
    // The quotient of a division, or 1 less: a division would take a considerable part of the time
    // of an operation within a node.
    auto rank = static_cast<std::int64_t>(static_cast<Wide>(byte) * a.reciprocal >> 64);
    if ((rank + 1) * a.share <= byte) ++rank;
    if (rank > a.last_rank) rank = a.last_rank;
    return {&a.memory, static_cast<int>(rank), byte - rank * a.share};
  }

  // The bytes of an array of `bytes` bytes that this rank owns.
  Range own_part(const std::byte* address, std::int64_t bytes) const {
    Range own{0, 0};
    for_parts(address, bytes, [&](const Place<Memory>& p, std::int64_t first, std::int64_t count) {
      if (p.rank == L::rank()) own = {first, first + count};
    });
    return own;
  }

  void write(const std::byte* to, const void* from, std::int64_t bytes) const {
    change(to, bytes, [&](std::byte* own, std::int64_t first, std::int64_t count) {
      std::memcpy(own, static_cast<const std::byte*>(from) + first,
                  static_cast<std::size_t>(count));
    });
  }

  void read(void* to, const std::byte* from, std::int64_t bytes) const {
    for_parts(from, bytes, [&](const Place<Memory>& p, std::int64_t first, std::int64_t count) {
      std::byte* const part = static_cast<std::byte*>(to) + first;
      if (p.rank != L::rank()) return L::get(p, part, count);
      std::memcpy(part, L::own(*p.memory) + p.at, static_cast<std::size_t>(count));
    });
  }

  template <class T>
  void fill(const std::byte* to, std::int64_t elements, std::int64_t columns,
            std::uint32_t salt) const {
    constexpr std::int64_t kSize = sizeof(T);
    change(to, elements * kSize, [&](std::byte* own, std::int64_t first, std::int64_t count) {
      for (std::int64_t i = 0; i < count / kSize; ++i) {
        const auto column = static_cast<std::uint32_t>((first / kSize + i) % columns);
        reinterpret_cast<T*>(own)[i] = static_cast<T>(fill_value(column, salt));
      }
    });
  }

 private:
  __extension__ using Wide = unsigned __int128;

  struct Array {
    Memory memory;
    std::int64_t most;  // bytes of the longest part
    std::int64_t share;
    std::uint64_t reciprocal;  // 2^64 divided by the share
    std::int64_t last_rank;
    bool allocated;
    bool released;
  };

  static constexpr std::int64_t kWord_B = 8;
  // Shared memory that a rank's messages may take later: Open MPI's segment is this long.
  static constexpr std::int64_t kBuffers_B = std::int64_t{4} << 20;
  static constexpr int kNumberShift = 44;
  static constexpr std::uintptr_t kByte = (std::uintptr_t{1} << kNumberShift) - 1;

  static std::size_t number_of(const void* address) {
    return (reinterpret_cast<std::uintptr_t>(address) >> kNumberShift) - 1;
  }

  // A library only reserves shared memory, and the system ends a rank that touches what it lacks.
  void check_shared_memory(std::int64_t most) {
    std::int64_t reserved = most * L::ranks_on_node();
    for (const Array& a : arrays_) reserved += a.allocated ? a.most * L::ranks_on_node() : 0;
    const MemoryLimit limit = L::shared_memory();
    // What was free before the first array, whose pages may be touched by now.
    if (reserved == most * L::ranks_on_node()) shared_B_ = limit.available_B;
    const std::int64_t buffers = kBuffers_B * L::ranks_on_node();
    // With less, messages take another way.
    const std::int64_t left = shared_B_ - (shared_B_ < buffers ? 0 : buffers);
    if (L::largest(reserved > left ? 1.0 : 0.0) <= 0.0) return;
    throw MemoryError("the ranks of a host need " + std::to_string(reserved) +
                      " bytes of shared memory, but " + limit.source + " has " +
                      std::to_string(left) +
                      " left: use smaller sizes, or enlarge it (docker run --shm-size=4g, or mount "
                      "-o remount,size=4g " +
                      limit.source + ")");
  }

  // The time of a release depends on each rank's interpreter, so the ranks agree here.
  void free_released() {
    for (Array& a : arrays_) {
      if (!a.allocated || L::largest(a.released ? 0.0 : 1.0) > 0.0) continue;
      L::free(a.memory);
      a.allocated = false;
    }
  }

  // Calls fn(place, first, count) for each rank's part of `bytes` bytes: `count` bytes from number
  // `first` on.
  template <class Fn>
  void for_parts(const std::byte* address, std::int64_t bytes, const Fn& fn) const {
    const std::int64_t share = arrays_[number_of(address)].share;
    for (std::int64_t first = 0; first < bytes;) {
      const Place<Memory> p = place_of(address + first);
      std::int64_t count = bytes - first;
      if (p.rank < L::ranks() - 1) count = std::min(count, share - p.at);
      fn(p, first, count);
      first += count;
    }
  }

  // Calls fn(memory, first, count) for this rank's part after all ranks have finished reading, and
  // returns when all ranks have done so.
  template <class Fn>
  void change(const std::byte* address, std::int64_t bytes, const Fn& fn) const {
    L::barrier();
    for_parts(address, bytes, [&](const Place<Memory>& p, std::int64_t first, std::int64_t count) {
      if (p.rank == L::rank()) fn(L::own(*p.memory) + p.at, first, count);
    });
    L::barrier();
  }

  std::int64_t shared_B_ = 0;  // free shared memory without the arrays
  std::vector<Array> arrays_;
};

// The arrays of a library.
template <class L>
Arrays<L>& arrays() {
  static auto* all = new Arrays<L>;
  return *all;
}

}  // namespace memkern::ranks
