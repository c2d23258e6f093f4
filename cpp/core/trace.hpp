// Reads traces of the accesses of a program.
//
// A trace begins with a line that names its format, and a line for each loaded file: its first
// address, its length (both hexadecimal) and its path; zeros fill the first kHead_B bytes. Parts of
// kPart_B bytes follow, each of one thread: the thread's number, the accesses that it left out
// after its last event (8 bytes each), and events. A byte of an event is
//   0           the rest of the part is unused,
//   1 to 127    so many accesses as predicted,
//   128 + bits  an access, with a number in LEB128 for each bit, in this order:
//               kGap      accesses left out before it
//               kSite     its site
//               kDefined  the site's address in the code, and how it accesses + 8 times the size
//               kLength   the bytes accessed
//               kAddress  the address less the predicted one, zigzag
//               kValue    the value that was loaded
// A part of the thread 2^64 - 1 is the last one and has text instead, up to the end of the file.
// The predicted site is the one that followed the last site before, the predicted address that of
// the site's last access plus the distance to the one before. Sites are numbered by each thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace memkern {

enum : std::uint32_t { kReads = 1, kWrites = 2, kAtomic = 4 };

// Instead of the number of a site.
inline constexpr std::uint32_t kNoSite = ~std::uint32_t{0};

// An access. A loaded value is known of a sample of them, or is negative.
struct Access {
  std::uint64_t at = 0;
  std::uint32_t site = 0;  // number of an instruction
  std::uint32_t size = 0;
  std::int64_t value = -1;
};

// A linear dependency of a site's addresses on values that another site loads: address = base +
// scale * value, where the base is the same while the other site's addresses continue at their
// distance.
struct Dependency {
  std::uint32_t on = 0;
  std::int64_t scale = 0;
  std::int64_t hits = 0, tries = 0;          // pairs of successive accesses
  std::int64_t all_hits = 0, all_tries = 0;  // also where the other site's addresses jump
  // Of the last pair.
  std::uint64_t at = 0, from = 0;
  std::int64_t step = 0, value = 0, when = 0;
};

// An instruction, and its accesses by all threads.
struct Site {
  static constexpr std::size_t kDeltas = 8;
  static constexpr std::size_t kDependencies = 4;
  std::uint64_t caller = 0;  // address in the code
  std::uint32_t how = 0;
  std::uint32_t size = 0;  // of its first access
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  std::uint64_t low = ~std::uint64_t{0}, high = 0;  // first and last address
  std::int64_t begin = 0, end = 0;  // accesses of the first thread until its first and last one
  // The most frequent distances between successive accesses of a thread.
  std::array<std::int64_t, kDeltas> delta{}, deltas{};
  std::vector<Dependency> dependencies;
  std::vector<std::int64_t> threads;  // accesses by thread
};

// What is known of a line that was accessed atomically.
struct AtomicLines {
  std::int64_t accesses = 0, lines = 0, shared = 0;  // shared by several threads
};

class Trace {
 public:
  // Throws InputError.
  explicit Trace(const std::string& path);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  const std::string& head() const { return head_; }
  const std::string& text() const { return text_; }
  const std::vector<Site>& sites() const { return sites_; }
  std::int64_t left_out() const { return left_out_; }
  int threads() const { return static_cast<int>(parts_.size()); }
  AtomicLines atomics() const;

  // The first accesses of a site by a thread: their addresses, and the addresses and values of the
  // last loads of another site, 0 and -1 if there are none.
  struct Sequence {
    std::uint32_t site = 0, other = 0;
    std::vector<std::uint64_t> at, from;
    std::vector<std::int64_t> value;
  };
  // Fills the sequences with at most `most` accesses each.
  void follow(int thread, std::vector<Sequence>& sequences, std::int64_t most) const;

 private:
  // Calls visit(access, last) for the accesses of a thread until it returns false, where `last` is
  // the site's address before, or 0, and define(caller, how, size) for each new site, which returns
  // its number. Returns the accesses that were left out.
  template <class Define, class Visit>
  std::int64_t walk(std::size_t thread, const Define& define, const Visit& visit) const;
  void profile(std::size_t thread);

  std::string path_;
  std::string head_;
  std::string text_;
  const unsigned char* data_ = nullptr;
  std::int64_t size_B_ = 0;
  std::vector<std::vector<std::int64_t>> parts_;              // first bytes, by thread
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // of sites, by their callers
  std::vector<Site> sites_;
  std::int64_t left_out_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> atomic_lines_;  // threads, as bits
};

}  // namespace memkern
