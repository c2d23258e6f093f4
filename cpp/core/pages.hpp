// Sizes of pages: which ones the system provided for a mapping, and which limit refuses others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace memkern {

// "4k", "64k", "hugetlb-2m", "hugetlb-1g".
std::string page_name(std::int64_t bytes);

// Page sizes that the kernel reports for the mappings within [data, data + bytes): "4k", "thp" (the
// size of an entry of the page table's directory), "hugetlb-2m", "hugetlb-1g", a mixture such as
// "thp:0.42" (the share of bytes in huge pages), or "unknown". Smaller folios of several pages are
// named by their size, "64k", where this process may see the page frames, else as a range of sizes
// that the settings permit, "4k to 64k". `advised` is whether MADV_HUGEPAGE was given.
std::string read_pages(const std::byte* data, std::int64_t bytes, bool advised);

// Sizes of transparent huge pages that the settings of each size permit, increasing: "always",
// "madvise" for memory that is advised, "inherit" as the setting of all sizes, "never". `root` is
// prepended to every path, for tests.
std::vector<std::int64_t> permitted_folios_B(bool advised, const std::string& root = "");

// Why there are no transparent huge pages although they were advised, as the end of a sentence.
std::string why_no_thp(const std::string& root = "");

// Which limit refuses pages of this size from the system's pool: that of the machine, the pool or a
// cgroup, as the end of a sentence; empty if none is known to.
std::string hugetlb_limit(std::int64_t page_B, std::int64_t bytes, const std::string& root = "");

}  // namespace memkern
