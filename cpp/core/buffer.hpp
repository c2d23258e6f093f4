// Memory for measuring: aligned, with a page and a NUMA policy, first touched by the workers
// that will use each part, refused before it is touched where it would not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/team.hpp"

namespace memkern {

// `Default` takes transparent huge pages where the system grants them and base pages elsewhere;
// every other policy is a demand.
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
  // Array k (from 0) of a case starts (k + 1) * offset_B past the begin of a page.
  std::int64_t offset_B = 0;
  // Whose memory it is, and for how many of its workers; the process's own without one.
  DeviceMemory* device = nullptr;
  int workers = 1;
  std::string key() const;
};

// One mapping with inaccessible pages on both sides, so that an overrun faults and the kernel's
// account of it is not merged with a neighbour's; or an allocation of a device.
class Buffer {
 public:
  Buffer(std::int64_t bytes, const Placement& placement);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t page_B() const { return page_B_; }

  // First touch of [begin, end) by the calling thread. False with errno set where the kernel
  // refuses; never a signal.
  bool populate(std::int64_t begin, std::int64_t end) const;

  // What the kernel says it gave: "4k", "thp", "hugetlb-2m", "hugetlb-1g" or a mixture such as
  // "thp:0.42" (the share of bytes in huge pages); of a device's memory, its name.
  const std::string& obtained_pages() const;

  // What stands in the first `content_columns` elements, so that refilling can be saved; empty
  // when unknown.
  std::string content;
  std::int64_t content_columns = 0;

 private:
  std::string read_pages() const;

  mutable std::string obtained_pages_;
  DeviceMemory* device_ = nullptr;
  bool may_be_huge_ = false;
  std::byte* reserved_ = nullptr;
  std::int64_t reserved_B_ = 0;
  std::byte* data_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t page_B_ = 0;
};

// Buffers of one prepared case: sizes are asked for first, then granted or refused together.
// Memory comes back to a process-wide pool and is handed on only where pages, policy, team and
// partition agree.
class Arena {
 public:
  Arena(const Team& team, const Placement& placement) : team_(team), placement_(placement) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Of `bytes`, row r belongs to worker r (`rows` > 1) or all workers share one row in equal
  // parts (`rows` == 1), or in parts that begin at boundaries[w]. Returns the slot's number.
  std::size_t request(std::int64_t bytes, std::int64_t rows,
                      std::vector<std::int64_t> boundaries_B = {});
  // Grants all requests or throws MemoryError before touching any; then first-touches.
  void commit();
  Buffer& operator[](std::size_t slot) const { return *slots_[slot].buffer; }
  std::size_t size() const { return slots_.size(); }
  std::string obtained_pages() const;
  DeviceMemory* device() const { return placement_.device; }

  // Gives back unused buffers smaller than so many bytes.
  static void release_pool(std::int64_t below_B = INT64_MAX);

 private:
  struct Slot {
    std::int64_t bytes;
    std::int64_t rows;
    std::vector<std::int64_t> boundaries_B;
    std::unique_ptr<Buffer> buffer;
    std::string key;
  };
  const Team& team_;
  Placement placement_;
  std::vector<Slot> slots_;
};

}  // namespace memkern
