// Memory for measurements: aligned, with a page size and a NUMA policy, first touched by the
// workers that use each part. Requests beyond the memory limit are refused before any page is
// touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/parts.hpp"
#include "core/team.hpp"

namespace memkern {

// `Default` uses transparent huge pages where the system grants them and base pages elsewhere; any
// other value is a requirement.
enum class Pages { Default, Base4k, Thp, Huge2m, Huge1g };
Pages parse_pages(const std::string& text);

struct NumaPolicy {
  enum class Kind { FirstTouch, Interleave, Node };
  Kind kind = Kind::FirstTouch;
  int node = -1;
};
NumaPolicy parse_numa(const std::string& text);

class DeviceMemory;

struct Placement {
  Pages pages = Pages::Default;
  NumaPolicy numa;
  // Array k (from 0) of a case starts (k + 1) * offset_B after the start of a page.
  std::int64_t offset_B = 0;
  DeviceMemory* device = nullptr;  // null: memory of this process
  int workers = 1;                 // of the device
  std::string key() const;
};

// One mapping with inaccessible pages on both sides, so that an overrun faults and smaps does not
// merge the mapping with a neighbour; or an allocation on a device.
class Buffer {
 public:
  Buffer(std::int64_t bytes, const Placement& placement);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t capacity() const { return capacity_; }
  bool on_device() const { return device_ != nullptr; }

  // First touch of [begin, end) by the calling thread. False, with errno set, if the kernel refuses
  // (before Linux 5.14 a refusal is a signal).
  bool populate(std::int64_t begin, std::int64_t end) const;

  // Page size reported by the kernel (see read_pages); for memory of a device, the device's name.
  const std::string& obtained_pages() const;

  // Error number of the advice on the size of pages; 0 if it was taken.
  int advice_error() const { return advice_error_; }

  // Identifies the values in the first `content_columns` elements of each row, so that filling them
  // again can be skipped; empty if unknown.
  std::string content;
  std::int64_t content_columns = 0;

 private:
  void unmap() const;

  mutable std::string obtained_pages_;
  DeviceMemory* device_ = nullptr;
  bool may_be_huge_ = false;
  int advice_error_ = 0;
  std::byte* reserved_ = nullptr;
  std::int64_t reserved_B_ = 0;
  std::byte* data_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t page_B_ = 0;
};

// Buffers of one prepared case: all sizes are requested first, then granted or refused as a whole.
// Released memory goes to a process-wide pool and is reused only with the same pages, NUMA policy,
// team and partition.
class Arena {
 public:
  Arena(const Team& team, const Placement& placement) : team_(team), placement_(placement) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // With `rows` > 1, row r belongs to worker r. A single row is divided among all workers, in equal
  // parts or in parts that begin at boundaries_B[w]. Memory without `pooled` neither comes from the
  // pool nor returns to it. Returns the number of the slot.
  std::size_t request(std::int64_t bytes, std::int64_t rows,
                      std::vector<std::int64_t> boundaries_B = {}, bool pooled = true);
  // Allocates and first-touches all requests; throws MemoryError, before touching any page, if they
  // exceed the memory limit.
  void commit();
  Buffer& operator[](std::size_t slot) const { return *slots_[slot].buffer; }
  std::string obtained_pages() const;
  // Share of the pages that are on another NUMA node than the requested one, or, where that is the
  // node of the first touch, than the bound worker that touched them, of a sample of each worker's
  // pages. NaN if unknown.
  double misplaced_share() const;
  // Why the system refuses to be advised on pages of a buffer; empty if it does not.
  std::string pages_refused() const;
  DeviceMemory* device() const { return placement_.device; }

  // Frees the unused buffers smaller than `below_B`, so that later ones get other pages, or all
  // unused memory.
  static void release_pool(std::int64_t below_B = INT64_MAX);

 private:
  struct Slot {
    std::int64_t bytes;
    std::int64_t rows;
    std::vector<std::int64_t> boundaries_B;
    bool pooled;
    std::unique_ptr<Buffer> buffer;
    std::string key;
  };
  // Calls a function for the part of each worker.
  void in_parts(const Slot& slot, const std::function<void(Range, int)>& fn) const;
  // Throws MemoryError if the pools of these nodes have too few huge pages for the requests.
  void check_huge_pages(const std::vector<int>& nodes, bool evenly) const;

  const Team& team_;
  Placement placement_;
  std::vector<Slot> slots_;
};

}  // namespace memkern
