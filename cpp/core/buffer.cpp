#include "core/buffer.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include "core/arithmetic.hpp"
#include "core/device_memory.hpp"
#include "core/errors.hpp"
#include "core/limits.hpp"
#include "core/pages.hpp"
#include "core/refusal.hpp"
#include "core/topology.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

namespace memkern {
namespace {

constexpr std::int64_t kHuge2m = std::int64_t{1} << 21;
constexpr std::int64_t kHuge1g = std::int64_t{1} << 30;
// Reserve for the rest of the process and the system.
constexpr std::int64_t kReserve_B = std::int64_t{64} << 20;
// Buffers of base pages that are at most this long have addresses within one range (see
// SmallAddresses).
constexpr std::int64_t kSmall_B = std::int64_t{256} << 10;
// Most memory that is set aside (see set_aside), in all and at once.
constexpr std::int64_t kAside_B = std::int64_t{128} << 20;
constexpr std::int64_t kAsideAtOnce_B = kAside_B / 4;
// Pages of each worker's part of an array whose nodes are read back.
constexpr std::int64_t kSampledPages = 64;

std::int64_t base_page_B() { return Topology::instance().page_B(); }

std::string gigabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

bool is_hugetlb(Pages pages) { return pages == Pages::Huge2m || pages == Pages::Huge1g; }

bool may_be_huge(std::int64_t bytes, Pages pages) {
  return pages == Pages::Thp || (pages == Pages::Default && bytes >= kHuge2m);
}

bool is_small(std::int64_t bytes, Pages pages) {
  return bytes <= kSmall_B && !may_be_huge(bytes, pages) && !is_hugetlb(pages);
}

void* reserve(void* at, std::int64_t bytes) {
  return mmap(at, static_cast<std::size_t>(bytes), PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
}

// Addresses for small buffers: a range of one MiB, aligned to its size. The L1 cache of AMD's Zen
// looks up a line by eight bits, a hash of bits 12 to 27 of its address, and keeps only one of two
// lines with the same page offset and the same hash (Lipp et al., Take A Way, AsiaCCS 2020). Within
// the range all pages have different hashes.
class SmallAddresses {
 public:
  static SmallAddresses& instance() {
    static SmallAddresses addresses;
    return addresses;
  }

  // Inaccessible pages in a row; null if there are too few.
  std::byte* take(std::int64_t bytes) {
    const std::int64_t wanted = bytes / page_B_;
    std::int64_t unused = 0;
    for (std::int64_t k = 0; k < pages_; ++k) {
      unused = used_[static_cast<std::size_t>(k)] ? 0 : unused + 1;
      if (unused < wanted) continue;
      const std::int64_t first = k + 1 - wanted;
      mark(first, wanted, true);
      return begin_ + first * page_B_;
    }
    return nullptr;
  }

  bool has(const std::byte* data) const { return data >= begin_ && data < begin_ + kBytes; }

  void give_back(std::byte* data, std::int64_t bytes) {
    reserve(data, bytes);
    mark((data - begin_) / page_B_, bytes / page_B_, false);
  }

 private:
  static constexpr std::int64_t kBytes = std::int64_t{1} << 20;

  SmallAddresses() {
    void* region = reserve(nullptr, 2 * kBytes);
    if (region == MAP_FAILED) return;
    auto* data = static_cast<std::byte*>(region);
    constexpr auto kSize = static_cast<std::uintptr_t>(kBytes);
    begin_ = data + (kSize - reinterpret_cast<std::uintptr_t>(region) % kSize) % kSize;
    pages_ = kBytes / page_B_;
  }

  void mark(std::int64_t first, std::int64_t pages, bool used) {
    std::fill_n(used_.begin() + first, pages, used);
  }

  // The system's, since buffers may outlive the description of a machine with other pages.
  const std::int64_t page_B_ = sysconf(_SC_PAGESIZE);
  std::byte* begin_ = nullptr;
  std::int64_t pages_ = 0;
  std::array<bool, kBytes / 4096> used_{};
};

void apply_numa(void* data, std::int64_t bytes, const NumaPolicy& policy) {
  if (policy.kind == NumaPolicy::Kind::FirstTouch) return;
  const Topology& machine = Topology::instance();
  const bool interleaved = policy.kind == NumaPolicy::Kind::Interleave;
  if (!machine.bind_memory(data, bytes,
                           interleaved ? machine.numa_nodes() : std::vector<int>{policy.node},
                           interleaved ? HWLOC_MEMBIND_INTERLEAVE : HWLOC_MEMBIND_BIND)) {
    throw InputError("the NUMA policy was refused: " + refused("mbind", errno, "SYS_NICE"));
  }
}

// Unused buffers, for reuse by later cases. Protected by the lock of the Python module: one case is
// prepared or measured at a time.
std::vector<std::pair<std::string, std::unique_ptr<Buffer>>>& pool() {
  static std::vector<std::pair<std::string, std::unique_ptr<Buffer>>> buffers;
  return buffers;
}

std::deque<std::unique_ptr<Buffer>>& aside() {
  static std::deque<std::unique_ptr<Buffer>> buffers;
  return buffers;
}

// Takes as much memory as was just freed: the system would give the next buffers the pages that it
// got back last, so that all placements of a small case would have the same ones.
void set_aside(std::int64_t bytes) {
  const std::int64_t wanted = std::clamp(bytes, kSmall_B + 1, kAsideAtOnce_B);
  try {
    auto buffer = std::make_unique<Buffer>(wanted, Placement{Pages::Base4k, {}});
    if (!buffer->populate(0, wanted)) return;
    aside().push_back(std::move(buffer));
  } catch (const MemoryError&) {
    return;
  }
  std::int64_t sum = 0;
  for (const auto& buffer : aside()) sum += buffer->capacity();
  for (; sum > kAside_B; aside().pop_front()) sum -= aside().front()->capacity();
}

std::int64_t pooled_B() {
  std::int64_t sum = 0;
  for (const auto& [key, buffer] : pool()) sum += buffer->capacity();
  return sum;
}

}  // namespace

Pages parse_pages(const std::string& text) {
  if (text == "default") return Pages::Default;
  if (text == "4k") return Pages::Base4k;
  if (text == "thp") return Pages::Thp;
  if (text == "hugetlb-2m") return Pages::Huge2m;
  if (text == "hugetlb-1g") return Pages::Huge1g;
  throw InputError("pages '" + text + "' is not default, 4k, thp, hugetlb-2m or hugetlb-1g");
}

NumaPolicy parse_numa(const std::string& text) {
  if (text == "first-touch") return {};
  if (text == "interleave") return {NumaPolicy::Kind::Interleave, -1};
  if (text.starts_with("node:")) {
    int node = -1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 5, end, node);
    const std::vector<int> nodes = Topology::instance().numa_nodes();
    if (error == std::errc() && stop == end &&
        std::find(nodes.begin(), nodes.end(), node) != nodes.end()) {
      return {NumaPolicy::Kind::Node, node};
    }
    throw InputError("numa '" + text + "' names no NUMA node of this machine, which has " +
                     std::to_string(nodes.size()));
  }
  throw InputError("numa '" + text + "' is not first-touch, interleave or node:N");
}

std::string Placement::key() const {
  return std::to_string(static_cast<int>(pages)) + "/" +
         std::to_string(static_cast<int>(numa.kind)) + ":" + std::to_string(numa.node) +
         (device == nullptr ? "" : "/" + device->name());
}

Buffer::Buffer(std::int64_t bytes, const Placement& placement) : device_(placement.device) {
  if (device_ != nullptr) {
    capacity_ = std::max<std::int64_t>(bytes, 1);
    data_ = device_->allocate(capacity_);
    return;
  }
  const bool hugetlb = is_hugetlb(placement.pages);
  if (placement.pages == Pages::Base4k && base_page_B() != 4096) {
    throw InputError("pages '4k' are not available: this machine's base page has " +
                     std::to_string(base_page_B()) + " bytes");
  }
  page_B_ = placement.pages == Pages::Huge1g ? kHuge1g : hugetlb ? kHuge2m : base_page_B();
  may_be_huge_ = may_be_huge(bytes, placement.pages);
  const std::int64_t align = hugetlb ? page_B_ : may_be_huge_ ? kHuge2m : page_B_;
  capacity_ = round_up(std::max<std::int64_t>(bytes, 1), align);

  // Beyond some of these limits the first touch would be a signal.
  const auto no_hugetlb = [&](const std::string& why) {
    return MemoryError("pages '" + page_name(page_B_) + "' are not available for " +
                       gigabytes(capacity_) + ": " + why);
  };
  if (hugetlb) {
    const std::string limit = hugetlb_limit(page_B_, capacity_);
    if (!limit.empty()) throw no_hugetlb(limit);
  }
  reserved_B_ = checked_add(capacity_, 2 * align, "a buffer size");
  void* region =
      is_small(bytes, placement.pages) ? SmallAddresses::instance().take(reserved_B_) : nullptr;
  if (region == nullptr) region = reserve(nullptr, reserved_B_);
  if (region == MAP_FAILED) {
    throw MemoryError("no address space for a buffer of " + gigabytes(capacity_) + ": " +
                      std::strerror(errno));
  }
  reserved_ = static_cast<std::byte*>(region);
  const auto address = reinterpret_cast<std::uintptr_t>(reserved_);
  const auto step = static_cast<std::uintptr_t>(align);
  const auto start =
      (address + static_cast<std::uintptr_t>(base_page_B()) + step - 1) / step * step;
  data_ = reserved_ + (start - address);

  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (hugetlb)
    flags |= MAP_HUGETLB | ((placement.pages == Pages::Huge1g ? 30 : 21) << MAP_HUGE_SHIFT);
  void* mapped =
      mmap(data_, static_cast<std::size_t>(capacity_), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    unmap();
    if (hugetlb && error != ENOMEM) throw no_hugetlb(refused("mmap", error, ""));
    const MemoryLimit limit = memory_limit();
    if (limit.available_B < capacity_) {
      throw MemoryError("a buffer of " + gigabytes(capacity_) + " was refused: " + limit.source +
                        " leaves " + gigabytes(limit.available_B));
    }
    if (hugetlb) throw no_hugetlb("the system can't add so many to its pool now");
    throw MemoryError("a buffer of " + gigabytes(capacity_) +
                      " was refused: " + std::strerror(error));
  }
  try {
    // No huge page may form if 4k is required. The kernel may not know this advice, so the obtained
    // page size is read back later.
    const auto advise = [&](int advice) {
      advice_error_ = madvise(data_, static_cast<std::size_t>(capacity_), advice) == 0 ? 0 : errno;
    };
    if (placement.pages == Pages::Base4k) advise(MADV_NOHUGEPAGE);
    if (may_be_huge_) advise(MADV_HUGEPAGE);
    apply_numa(data_, capacity_, placement.numa);
  } catch (...) {
    unmap();
    throw;
  }
}

Buffer::~Buffer() {
  if (device_ != nullptr) {
    device_->release(data_);
  } else {
    unmap();
  }
}

void Buffer::unmap() const {
  SmallAddresses& small = SmallAddresses::instance();
  if (small.has(reserved_)) {
    small.give_back(reserved_, reserved_B_);
  } else {
    munmap(reserved_, static_cast<std::size_t>(reserved_B_));
  }
}

bool Buffer::populate(std::int64_t begin, std::int64_t end) const {
  if (device_ != nullptr) return true;
  const std::int64_t page = base_page_B();
  const std::int64_t first = begin / page_B_ * page_B_;
  const std::int64_t last = std::min(capacity_, round_up(end, page_B_));
  if (first >= last) return true;
  if (madvise(data_ + first, static_cast<std::size_t>(last - first), MADV_POPULATE_WRITE) == 0) {
    return true;
  }
  // Kernels before 5.14 do not know MADV_POPULATE_WRITE, and a filter may refuse it.
  if (errno != EINVAL && errno != EPERM && errno != ENOSYS) return false;
  for (std::int64_t at = first; at < last; at += page) {
    *reinterpret_cast<volatile char*>(data_ + at) = 0;
  }
  return true;
}

const std::string& Buffer::obtained_pages() const {
  if (device_ != nullptr) obtained_pages_ = device_->name();
  // Reading smaps walks every page; only transparent huge pages can change later.
  if (obtained_pages_.empty() || may_be_huge_)
    obtained_pages_ = read_pages(data_, capacity_, may_be_huge_);
  return obtained_pages_;
}

std::size_t Arena::request(std::int64_t bytes, std::int64_t rows,
                           std::vector<std::int64_t> boundaries_B, bool pooled) {
  slots_.push_back({bytes, rows, std::move(boundaries_B), pooled, nullptr, {}});
  return slots_.size() - 1;
}

void Arena::commit() {
  // The placement of the parts matters only on machines with more than one NUMA node.
  const bool partition_matters = Topology::instance().numa_nodes().size() > 1;
  for (Slot& slot : slots_) {
    if (!slot.pooled) continue;
    slot.key = placement_.key() + "/" + team_.memory_key() + "/" + std::to_string(slot.rows);
    if (placement_.device == nullptr) {
      // Every case gets the same kind of pages and addresses as a first case.
      if (is_small(slot.bytes, placement_.pages)) slot.key += "/small";
      if (may_be_huge(slot.bytes, placement_.pages)) slot.key += "/huge";
    }
    if (partition_matters) {
      slot.key += "/" + std::to_string(slot.bytes);
      for (const std::int64_t b : slot.boundaries_B) slot.key += "," + std::to_string(b);
    }
    auto best = pool().end();
    for (auto it = pool().begin(); it != pool().end(); ++it) {
      if (it->first != slot.key || it->second->capacity() < slot.bytes) continue;
      if (best == pool().end() || it->second->capacity() < best->second->capacity()) best = it;
    }
    if (best != pool().end()) {
      slot.buffer = std::move(best->second);
      pool().erase(best);
    }
  }

  // The nodes on which the memory must be; none if the system chooses them.
  const bool evenly = placement_.numa.kind == NumaPolicy::Kind::Interleave;
  std::vector<int> nodes;
  if (placement_.numa.kind == NumaPolicy::Kind::Node) nodes = {placement_.numa.node};
  if (evenly) nodes = Topology::instance().numa_nodes();
  if (placement_.device == nullptr && is_hugetlb(placement_.pages)) {
    check_huge_pages(nodes.empty() ? bound_nodes() : nodes, evenly);
  }
  std::int64_t wanted = 0;
  for (const Slot& slot : slots_) {
    // Pages of the system's hugetlb pool are already reserved and count towards no other limit.
    if (!slot.buffer && !is_hugetlb(placement_.pages))
      wanted = checked_add(wanted, slot.bytes, "the memory of this case");
  }
  if (wanted > 0) {
    const auto left = [&] {
      const DeviceMemory* device = placement_.device;
      if (device != nullptr) return MemoryLimit{device->free_B(), device->name()};
      const MemoryLimit all = memory_limit();
      const MemoryLimit bound = node_limit(nodes, evenly);
      return bound.available_B < all.available_B ? bound : all;
    };
    MemoryLimit limit = left();
    const std::int64_t headroom = checked_add(wanted, kReserve_B, "the memory of this case");
    // Idle buffers use at most half as much memory as remains free.
    const bool idle = pooled_B() > 0 || !aside().empty();
    if (idle && (headroom > limit.available_B || pooled_B() > limit.available_B / 2)) {
      release_pool();
      limit = left();
    }
    if (headroom > limit.available_B) {
      throw MemoryError("this case needs " + gigabytes(wanted) + " but " + limit.source +
                        " leaves " +
                        gigabytes(std::max<std::int64_t>(0, limit.available_B - kReserve_B)) +
                        ": use smaller sizes");
    }
  }

  for (Slot& slot : slots_) {
    if (slot.buffer) continue;
    // Pooled buffers of this kind are too small: free their memory for the new one. A small one
    // needs the addresses of the others as well.
    const bool small = is_small(slot.bytes, placement_.pages);
    std::erase_if(pool(), [&](const auto& pooled) {
      return pooled.first == slot.key || (small && pooled.second->capacity() <= kSmall_B);
    });
    slot.buffer = std::make_unique<Buffer>(slot.bytes, placement_);
    std::atomic<int> failed{0};
    const Buffer& buffer = *slot.buffer;
    const auto touch = [&](Range part, int) {
      if (!buffer.populate(part.begin, part.end)) failed.store(errno);
    };
    in_parts(slot, touch);
    if (failed.load() != 0) {
      std::string reason = std::strerror(failed.load());
      // The limits are checked before: others have used them up since then.
      if (is_hugetlb(placement_.pages)) reason = "other programs have taken them meanwhile";
      slot.buffer.reset();
      throw MemoryError("the system could not provide " + gigabytes(slot.bytes) +
                        " in the requested pages: " + reason);
    }
    const bool thp = placement_.pages == Pages::Thp;
    const bool small_pages = placement_.pages == Pages::Base4k;
    const char* wanted_pages = thp ? "thp" : "4k";
    if ((thp || small_pages) && buffer.obtained_pages() != wanted_pages) {
      const std::string obtained = buffer.obtained_pages();
      // The system may not report the pages, but has accepted the advice.
      if (small_pages && obtained == "unknown") continue;
      const int error = buffer.advice_error();
      const std::string why = error != 0 && error != EINVAL ? refused("madvise", error, "")
                              : obtained == "unknown"       ? "/proc/self/smaps can't be read"
                              : thp                         ? why_no_thp()
                                    : "it does not know the advice MADV_NOHUGEPAGE";
      slot.buffer.reset();
      throw MemoryError("pages '" + std::string(wanted_pages) +
                        "' are not available: the kernel provided " + obtained + ", since " + why);
    }
  }
}

void Arena::in_parts(const Slot& slot, const std::function<void(Range, int)>& fn) const {
  if (slot.boundaries_B.empty()) {
    parallel_parts(team_, slot.rows, slot.bytes, fn);
  } else {
    parallel_parts(team_, slot.boundaries_B, fn);
  }
}

double Arena::misplaced_share() const {
  const NumaPolicy& numa = placement_.numa;
  const bool first_touch = numa.kind == NumaPolicy::Kind::FirstTouch;
  // The nodes of a described machine are not those of its memory.
  if (placement_.device != nullptr || numa.kind == NumaPolicy::Kind::Interleave ||
      (first_touch && !team_.bound()) || Topology::described()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::atomic<std::int64_t> seen{0}, misplaced{0};
  for (const Slot& slot : slots_) {
    in_parts(slot, [&](Range part, int) {
      auto node = static_cast<unsigned>(numa.node);
      if (first_touch && getcpu(nullptr, &node) != 0) return;
      // From the middles of equal pieces, since the pages at the ends of a part may be another's.
      std::array<void*, kSampledPages> pages{};
      std::array<int, kSampledPages> nodes{};
      const std::int64_t step = (part.end - part.begin) / kSampledPages;
      const auto page_B = static_cast<std::uintptr_t>(base_page_B());
      for (std::size_t k = 0; k < pages.size(); ++k) {
        const auto at = part.begin + static_cast<std::int64_t>(k) * step + step / 2;
        std::byte* address = slot.buffer->data() + at;
        pages[k] = address - reinterpret_cast<std::uintptr_t>(address) % page_B;
      }
      if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) {
        return;
      }
      for (const int found : nodes) {
        if (found < 0) continue;
        ++seen;
        if (std::cmp_not_equal(found, node)) ++misplaced;
      }
    });
  }
  return static_cast<double>(misplaced) / static_cast<double>(seen);  // NaN of none
}

void Arena::check_huge_pages(const std::vector<int>& nodes, bool evenly) const {
  // The system reserves huge pages in the pools of all nodes together, and ends a process that
  // touches one that its nodes do not have.
  const std::int64_t page_B = placement_.pages == Pages::Huge1g ? kHuge1g : kHuge2m;
  std::int64_t wanted = 0;
  for (const Slot& slot : slots_) {
    if (slot.buffer) continue;
    wanted = checked_add(wanted, round_up(std::max<std::int64_t>(slot.bytes, 1), page_B),
                         "the memory of this case");
  }
  const MemoryLimit limit = huge_page_limit(nodes, evenly, page_B);
  if (wanted > limit.available_B) {
    throw MemoryError("pages '" + page_name(page_B) + "' are not available for " +
                      gigabytes(wanted) + ": " + limit.source + " has " +
                      gigabytes(limit.available_B) +
                      " free (/sys/devices/system/node/node*/hugepages)");
  }
}

std::string Arena::obtained_pages() const {
  std::string largest = "none";
  std::int64_t bytes = -1;
  for (const Slot& slot : slots_) {
    if (slot.buffer && slot.bytes > bytes) {
      bytes = slot.bytes;
      largest = slot.buffer->obtained_pages();
    }
  }
  return largest;
}

std::string Arena::pages_refused() const {
  for (const Slot& slot : slots_) {
    const int error = slot.buffer ? slot.buffer->advice_error() : 0;
    if (error == EPERM || error == EACCES || error == ENOSYS) {
      return refused("madvise", error, "");
    }
  }
  return "";
}

Arena::~Arena() {
  for (Slot& slot : slots_) {
    const bool reusable = placement_.device == nullptr || placement_.device->reusable();
    if (slot.buffer && slot.pooled && reusable)
      pool().emplace_back(slot.key, std::move(slot.buffer));
  }
}

void Arena::release_pool(std::int64_t below_B) {
  std::int64_t freed_B = 0;
  std::erase_if(pool(), [&](const auto& pooled) {
    const bool freed = pooled.second->capacity() < below_B;
    if (freed && !pooled.second->on_device()) freed_B += pooled.second->capacity();
    return freed;
  });
  if (below_B == INT64_MAX) {
    aside().clear();
  } else if (freed_B > 0) {
    set_aside(freed_B);
  }
}

}  // namespace memkern
