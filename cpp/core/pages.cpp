#include "core/pages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <tuple>

#include "core/arithmetic.hpp"
#include "core/limits.hpp"
#include "core/topology.hpp"

namespace memkern {
namespace {

namespace fs = std::filesystem;

// Smallest share of pages of one size that is reported as this size: the kernel may leave a few
// pages small.
constexpr double kShare = 0.95;
const char* const kThp = "/sys/kernel/mm/transparent_hugepage/";

// The word in brackets of "always [madvise] never", empty if there is none.
std::string chosen(const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return "";
}

std::string folder_name(std::int64_t page_B) {
  return "hugepages-" + std::to_string(page_B / 1024) + "kB";
}

// The setting of a size of transparent huge pages; older kernels have only that of all sizes.
std::string setting(std::int64_t page_B, const std::string& root) {
  const std::string own = chosen(root + kThp + folder_name(page_B) + "/enabled");
  return own.empty() || own == "inherit" ? chosen(root + kThp + "enabled") : own;
}

// Size of the pages that one entry of the page table's directory maps.
std::int64_t directory_page_B(const std::string& root) {
  const std::int64_t found = read_number(root + kThp + "hpage_pmd_size");
  return found > 0 ? found : std::int64_t{1} << 21;
}

class File {
 public:
  explicit File(const char* path) : descriptor_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Reads the words from number `first` on, and returns how many there were.
  std::size_t read(std::uint64_t first, std::uint64_t* words, std::size_t count) const {
    const ssize_t found =
        pread(descriptor_, words, count * sizeof *words, static_cast<off_t>(first * sizeof *words));
    return found < 0 ? 0 : static_cast<std::size_t>(found) / sizeof *words;
  }

 private:
  int descriptor_;
};

// Bytes by the size of their folio, of some blocks of a mapping; empty without the permission to
// see page frames (CAP_SYS_ADMIN).
std::map<std::int64_t, std::int64_t> folios(const std::byte* data, std::int64_t bytes,
                                            std::int64_t page_B) {
  constexpr std::size_t kBlock = 512;
  constexpr std::int64_t kBlocks = 64;
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  constexpr std::uint64_t kFrame = (std::uint64_t{1} << 55) - 1;
  constexpr std::uint64_t kTail = std::uint64_t{1} << 16;  // KPF_COMPOUND_TAIL
  const File map("/proc/self/pagemap");
  const File flags("/proc/kpageflags");
  std::map<std::int64_t, std::int64_t> found;
  const auto first = reinterpret_cast<std::uintptr_t>(data) / static_cast<std::uintptr_t>(page_B);
  const std::int64_t pages = bytes / page_B;
  const std::int64_t blocks = pages / static_cast<std::int64_t>(kBlock) + 1;
  const std::int64_t step = (blocks + kBlocks - 1) / kBlocks * static_cast<std::int64_t>(kBlock);
  std::array<std::uint64_t, kBlock> entries{};
  for (std::int64_t begin = 0; begin < pages; begin += step) {
    const auto wanted = static_cast<std::size_t>(
        std::min<std::int64_t>(static_cast<std::int64_t>(kBlock), pages - begin));
    const std::size_t count =
        map.read(first + static_cast<std::uint64_t>(begin), entries.data(), wanted);
    std::int64_t folio = 0;
    const auto add = [&] {
      if (folio > 0) found[folio * page_B] += folio * page_B;
      folio = 0;
    };
    for (std::size_t k = 0; k < count; ++k) {
      if ((entries[k] & kPresent) == 0) continue;
      const std::uint64_t frame = entries[k] & kFrame;
      std::uint64_t flag = 0;
      if (frame == 0 || flags.read(frame, &flag, 1) != 1) return {};
      if ((flag & kTail) == 0) add();
      ++folio;
    }
    add();
  }
  return found;
}

// Smallest and largest of sizes, such as "4k to 64k".
std::string range(std::int64_t low_B, std::int64_t high_B) {
  return low_B == high_B ? page_name(low_B) : page_name(low_B) + " to " + page_name(high_B);
}

}  // namespace

std::string page_name(std::int64_t bytes) {
  if (bytes == std::int64_t{1} << 21) return "hugetlb-2m";
  if (bytes == std::int64_t{1} << 30) return "hugetlb-1g";
  return std::to_string(bytes / 1024) + "k";
}

std::vector<std::int64_t> permitted_folios_B(bool advised, const std::string& root) {
  std::vector<std::int64_t> sizes;
  std::error_code error;
  for (fs::directory_iterator entry(root + kThp, error), end; !error && entry != end;
       entry.increment(error)) {
    std::int64_t kB = 0;
    if (std::sscanf(entry->path().filename().c_str(), "hugepages-%" SCNd64 "kB", &kB) != 1)
      continue;
    const std::string word = setting(kB * 1024, root);
    if (word == "always" || (advised && word == "madvise")) sizes.push_back(kB * 1024);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::string read_pages(const std::byte* data, std::int64_t bytes, bool advised) {
  const std::int64_t base_B = Topology::instance().page_B();
  std::ifstream maps("/proc/self/smaps");
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(bytes);
  std::string line;
  bool ours = false;
  bool eligible = false;
  std::int64_t huge_kB = 0;
  std::int64_t resident_kB = 0;
  std::int64_t page_kB = 0;
  while (std::getline(maps, line)) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char permissions[5] = "";
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, permissions) == 3) {
      // Mappings are in the order of their addresses; the libraries come last.
      if (from >= end) break;
      ours = from >= begin && to <= end;
      continue;
    }
    if (!ours) continue;
    std::int64_t value = 0;
    char name[64] = "";
    if (std::sscanf(line.c_str(), "%63[^:]: %" SCNd64, name, &value) != 2) continue;
    if (std::strcmp(name, "AnonHugePages") == 0) huge_kB += value;
    if (std::strcmp(name, "Rss") == 0) resident_kB += value;
    if (std::strcmp(name, "KernelPageSize") == 0) page_kB = std::max(page_kB, value);
    if (std::strcmp(name, "THPeligible") == 0 && value != 0) eligible = true;
  }
  if (page_kB == 0) return "unknown";
  if (page_kB * 1024 > base_B) return page_name(page_kB * 1024);
  if (resident_kB == 0) return page_name(base_B);
  if (huge_kB == 0) {
    std::vector<std::int64_t> sizes_B = permitted_folios_B(advised);
    std::erase_if(sizes_B, [&](std::int64_t size_B) {
      return size_B <= base_B || size_B >= directory_page_B("") || size_B > bytes;
    });
    if (!eligible || sizes_B.empty()) return page_name(base_B);
    const std::map<std::int64_t, std::int64_t> known = folios(data, bytes, base_B);
    if (known.empty()) return range(base_B, sizes_B.back());
    std::int64_t sum_B = 0;
    for (const auto& [size_B, of_size_B] : known) sum_B += of_size_B;
    for (const auto& [size_B, of_size_B] : known) {
      if (static_cast<double>(of_size_B) >= kShare * static_cast<double>(sum_B))
        return page_name(size_B);
    }
    return range(known.begin()->first, known.rbegin()->first);
  }
  const double share = static_cast<double>(huge_kB) / static_cast<double>(resident_kB);
  if (share >= kShare) return "thp";
  char text[16];
  std::snprintf(text, sizeof text, "thp:%.2f", share);
  return text;
}

std::string why_no_thp(const std::string& root) {
  const std::int64_t page_B = directory_page_B(root);
  const std::string folder = kThp;
  if (read_keyed(root + "/proc/self/status", "THP_enabled:") == 0) {
    return "this process was started with transparent huge pages disabled (PR_SET_THP_DISABLE)";
  }
  const std::string word = setting(page_B, root);
  if (word.empty()) return "this kernel has no transparent huge pages";
  if (word != "never") {
    return "no memory is free in blocks of " + std::to_string(page_B / 1024) +
           " kB: as root, echo 1 > /proc/sys/vm/compact_memory";
  }
  const std::string own = folder + folder_name(page_B) + "/enabled";
  const bool inherited = chosen(root + own) != "never";
  return (inherited ? folder + "enabled" : own) + " is never: as root, echo madvise > " +
         (inherited ? folder + "enabled" : own);
}

std::string hugetlb_limit(std::int64_t page_B, std::int64_t bytes, const std::string& root) {
  const std::int64_t wanted = (bytes + page_B - 1) / page_B;
  const std::string pool = "/sys/kernel/mm/hugepages/" + folder_name(page_B);
  const auto number = [&](const std::string& path) { return read_number(root + path); };
  const std::int64_t free = number(pool + "/free_hugepages");
  if (free < 0) return "this machine has no pool of pages of this size";
  const auto some = [](std::int64_t count) { return std::max<std::int64_t>(count, 0); };
  const std::int64_t left = some(free - some(number(pool + "/resv_hugepages"))) +
                            some(some(number(pool + "/nr_overcommit_hugepages")) -
                                 some(number(pool + "/surplus_hugepages")));
  const std::string needed = " free, and " + std::to_string(wanted) + " needed";
  if (left < wanted) {
    return "the system's pool has " + std::to_string(left) + needed +
           " (nr_hugepages and nr_overcommit_hugepages in " + pool + ")";
  }
  const std::string size =
      page_B < std::int64_t{1} << 30 ? std::to_string(page_B >> 20) + "MB" : "1GB";
  for (const std::string& folder : cgroup_folders("hugetlb", root)) {
    for (const char* kind : {".", ".rsvd."}) {
      for (const auto& [most, usage] :
           {std::tuple{"max", "current"}, std::tuple{"limit_in_bytes", "usage_in_bytes"}}) {
        const std::string name = "hugetlb." + size + kind;
        const std::int64_t limit = read_number(folder + "/" + name + most);
        const std::int64_t has = limit - some(read_number(folder + "/" + name + usage));
        if (limit >= 0 && has < wanted * page_B) {
          return "the control group " + folder.substr(root.size()) + " leaves " +
                 std::to_string(some(has) / page_B) + needed + " (" + name + most + ")";
        }
      }
    }
  }
  return "";
}

}  // namespace memkern
