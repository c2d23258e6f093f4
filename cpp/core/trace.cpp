#include "core/trace.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/errors.hpp"

namespace memkern {
namespace {

constexpr char kFormat[] = "memkern trace 1\n";
constexpr std::int64_t kHead_B = 1 << 16;
constexpr std::int64_t kPart_B = 1 << 18;
constexpr std::int64_t kPartHead_B = 16;
constexpr std::uint64_t kMostThreads = 1 << 16;
constexpr std::uint64_t kText = ~std::uint64_t{0};
constexpr unsigned kEvent = 0x80;
constexpr unsigned kSite = 1, kAddress = 2, kValue = 4, kDefined = 8, kLength = 16, kGap = 32;

// A thread's state of a site.
struct Known {
  std::uint64_t at = 0;
  std::uint64_t step = 0;
  std::uint32_t next = 0;
  std::uint32_t number = 0;
  std::uint32_t size = 0;
  std::uint32_t how = 0;
};

// The bytes of a part, which end with zeros for whoever reads too far.
class Bytes {
 public:
  Bytes(const unsigned char* at, const unsigned char* end) : at_(at), end_(end) {}
  unsigned byte() { return at_ < end_ ? *at_++ : 0; }
  std::uint64_t number() {
    std::uint64_t n = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t b = byte();
      n |= (b & 0x7f) << shift;
      if (b < 0x80) break;
    }
    return n;
  }

 private:
  const unsigned char* at_;
  const unsigned char* end_;
};

template <class T>
T word(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::int64_t apart(std::uint64_t to, std::uint64_t from) {
  return static_cast<std::int64_t>(to - from);
}

// Counts a distance. The frequent ones remain, with their numbers since they were last replaced.
void count_delta(Site& s, std::int64_t delta) {
  std::size_t k = 0;
  while (k < Site::kDeltas && s.delta[k] != delta && s.deltas[k] > 0) ++k;
  if (k == Site::kDeltas) {
    // The rarest one loses a count, and its place with the last.
    --k;
    if (--s.deltas[k] > 0) return;
    s.deltas[k] = 0;
  }
  s.delta[k] = delta;
  ++s.deltas[k];
  if (k > 0 && s.deltas[k] > s.deltas[k - 1]) {
    std::swap(s.delta[k], s.delta[k - 1]);
    std::swap(s.deltas[k], s.deltas[k - 1]);
  }
}

// A load of a known value.
struct Load {
  std::uint32_t site = ~std::uint32_t{0};
  std::uint64_t at = 0;
  std::int64_t value = 0;
  std::int64_t when = 0;
};

void try_dependency(Site& s, std::uint64_t at, const Load& load, std::int64_t when) {
  constexpr std::int64_t kAgo = 1024;
  auto& all = s.dependencies;
  auto d = std::find_if(all.begin(), all.end(), [&](const auto& x) { return x.on == load.site; });
  if (d == all.end()) {
    if (all.size() == Site::kDependencies) {
      // Replaces one that does not hold.
      d = std::find_if(all.begin(), all.end(), [&](const auto& x) {
        return x.all_hits == 0 && (x.all_tries >= 4 || when - x.when > kAgo);
      });
      if (d == all.end()) return;
      *d = {};
    } else {
      d = all.emplace(all.end());
    }
    d->on = load.site;
  } else if (load.at != d->from || load.value != d->value || at != d->at) {
    const std::int64_t change =
        apart(static_cast<std::uint64_t>(load.value), static_cast<std::uint64_t>(d->value));
    const std::int64_t moved = apart(at, d->at);
    const std::int64_t step = apart(load.at, d->from);
    // The quotient of -2^63 and -1, of a damaged file, has no representation.
    const bool whole = change != 0 && moved != 0 && moved != INT64_MIN && moved % change == 0;
    if (d->all_tries >= 8 && 4 * d->all_hits < d->all_tries) {
      d->hits = d->tries = d->all_hits = d->all_tries = 0;
    }
    if (whole && d->all_hits == 0) {
      d->scale = moved / change;
    }
    const bool hit = whole ? moved / change == d->scale : change == 0 && moved == 0;
    // A repeated value with a repeated address says nothing.
    if (change != 0 || moved != 0) {
      ++d->all_tries;
      d->all_hits += hit ? 1 : 0;
      if (step == d->step && step != 0) {
        ++d->tries;
        d->hits += hit ? 1 : 0;
      }
    }
    d->step = step;
  }
  d->when = when;
  d->at = at;
  d->from = load.at;
  d->value = load.value;
}

}  // namespace

Trace::Trace(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) {
    if (file >= 0) close(file);
    throw InputError(path + " can't be read");
  }
  size_B_ = status.st_size;
  void* const memory =
      size_B_ < kHead_B || !S_ISREG(status.st_mode)
          ? MAP_FAILED
          : mmap(nullptr, static_cast<std::size_t>(size_B_), PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw InputError(path + " is not a trace of memkern: it is too short");
  data_ = static_cast<const unsigned char*>(memory);
  try {
    if (std::memcmp(data_, kFormat, sizeof kFormat - 1) != 0) {
      throw InputError(path + " is not a trace of memkern, or one of another version");
    }
    madvise(memory, static_cast<std::size_t>(size_B_), MADV_SEQUENTIAL);
    const auto* const text = reinterpret_cast<const char*>(data_);
    head_.assign(text, strnlen(text, kHead_B));
    for (std::int64_t at = kHead_B; at + kPartHead_B < size_B_; at += kPart_B) {
      const auto thread = word<std::uint64_t>(data_ + at);
      if (thread == kText) {
        text_.assign(text + at + kPartHead_B, text + size_B_);
        break;
      }
      if (thread >= kMostThreads) {
        throw InputError(path + " is damaged: byte " + std::to_string(at) + " is no thread");
      }
      if (parts_.size() <= thread) parts_.resize(thread + 1);
      parts_[thread].push_back(at);
    }
    if (text_.empty() && (size_B_ - kHead_B) % kPart_B != 0) {
      throw InputError(path + " is cut off after " + std::to_string(size_B_) + " bytes");
    }
    for (std::size_t thread = 0; thread < parts_.size(); ++thread) profile(thread);
  } catch (...) {
    munmap(memory, static_cast<std::size_t>(size_B_));
    throw;
  }
}

Trace::~Trace() { munmap(const_cast<unsigned char*>(data_), static_cast<std::size_t>(size_B_)); }

template <class Define, class Visit>
std::int64_t Trace::walk(std::size_t thread, const Define& define, const Visit& visit) const {
  std::vector<Known> sites;
  std::uint32_t last = 0;
  std::uint64_t left_out = 0;
  std::uint64_t at_end = 0;
  for (const std::int64_t begin : parts_[thread]) {
    Bytes bytes(data_ + begin + kPartHead_B, data_ + std::min(begin + kPart_B, size_B_));
    at_end = word<std::uint64_t>(data_ + begin + 8);
    for (unsigned b = bytes.byte(); b != 0; b = bytes.byte()) {
      const unsigned flags = b >= kEvent ? b - kEvent : 0;
      for (unsigned k = b < kEvent ? b : 1; k > 0; --k) {
        if (flags & kGap) left_out += bytes.number();
        std::uint64_t site = sites.empty() ? 0 : sites[last].next;
        if (flags & kSite) site = bytes.number();
        if (flags & kDefined) {
          const std::uint64_t caller = bytes.number();
          const auto kind = static_cast<std::uint32_t>(bytes.number());
          if (site == sites.size()) {
            const std::uint32_t number = define(caller, kind & 7, kind >> 3);
            sites.push_back({0, 0, static_cast<std::uint32_t>(site), number, kind >> 3, kind & 7});
          }
        }
        if (site >= sites.size()) {
          throw InputError(path_ + " is damaged in the part at byte " + std::to_string(begin));
        }
        Known& s = sites[site];
        std::uint64_t size = s.size;
        if (flags & kLength) size = bytes.number();
        std::uint64_t at = s.at + s.step;
        if (flags & kAddress) {
          const std::uint64_t n = bytes.number();
          at += (n >> 1) ^ (~(n & 1) + 1);
        }
        Access access{at, s.number,
                      static_cast<std::uint32_t>(std::min<std::uint64_t>(size, UINT32_MAX)), -1};
        if (flags & kValue) access.value = static_cast<std::int64_t>(bytes.number());
        if (!visit(access, s.at)) return 0;
        sites[last].next = static_cast<std::uint32_t>(site);
        last = static_cast<std::uint32_t>(site);
        s.step = at - s.at;
        s.at = at;
      }
    }
    // The part needs no memory any more; it can be read from the file again.
    madvise(const_cast<unsigned char*>(data_ + begin), kPart_B, MADV_DONTNEED);
  }
  return static_cast<std::int64_t>(left_out + at_end);
}

void Trace::profile(std::size_t thread) {
  constexpr std::size_t kRecent = 8;
  constexpr std::int64_t kLong = 32;  // accesses until a load is forgotten
  std::array<Load, kRecent> loads;
  std::int64_t when = 0;
  std::int64_t newest = 0;
  std::vector<std::int64_t> accessed;  // when, by site
  const auto define = [&](std::uint64_t caller, std::uint32_t how, std::uint32_t size) {
    const auto [found, is_new] =
        numbers_.try_emplace(caller, static_cast<std::uint32_t>(sites_.size()));
    if (is_new) {
      Site& s = sites_.emplace_back();
      s.caller = caller;
      s.how = how;
      s.size = size;
    }
    return found->second;
  };
  const auto visit = [&](const Access& a, std::uint64_t last) {
    Site& s = sites_[a.site];
    if (++s.count == 1) s.size = std::max(a.size, 1U);
    s.bytes += a.size;
    s.low = std::min(s.low, a.at);
    s.high = std::max(s.high, a.at);
    if (s.threads.size() <= thread) s.threads.resize(thread + 1);
    if (last != 0) count_delta(s, apart(a.at, last));
    if (s.how & kAtomic && atomic_lines_.size() < (1U << 22)) {
      atomic_lines_[a.at >> 6] |= std::uint64_t{1} << thread % 64;
    }
    if (++s.threads[thread] == s.count) {
      s.end = when;
      if (s.count == 1) s.begin = when;
    }
    ++when;
    if (accessed.size() < sites_.size()) accessed.resize(sites_.size());
    if (newest > accessed[a.site] && accessed[a.site] > 0) {
      for (const Load& load : loads) {
        if (load.when > accessed[a.site] && when - load.when < kLong) {
          try_dependency(s, a.at, load, when);
        }
      }
    }
    accessed[a.site] = when;
    if (a.value < 0) return true;
    // Values of four bytes are signed.
    const std::int64_t value =
        a.size == 4 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(a.value)) : a.value;
    auto slot = std::find_if(loads.begin(), loads.end(),
                             [&](const Load& load) { return load.site == a.site; });
    if (slot == loads.end()) {
      slot = std::min_element(loads.begin(), loads.end(),
                              [](const Load& x, const Load& y) { return x.when < y.when; });
    }
    *slot = {a.site, a.at, value, when};
    newest = when;
    return true;
  };
  left_out_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(left_out_) +
                                        static_cast<std::uint64_t>(walk(thread, define, visit)));
}

AtomicLines Trace::atomics() const {
  AtomicLines found;
  for (const Site& s : sites_) found.accesses += s.how & kAtomic ? s.count : 0;
  found.lines = std::ssize(atomic_lines_);
  for (const auto& [line, threads] : atomic_lines_) found.shared += std::popcount(threads) > 1;
  return found;
}

void Trace::follow(int thread, std::vector<Sequence>& sequences, std::int64_t most) const {
  if (thread < 0 || thread >= threads()) {
    throw InputError(path_ + " has no thread " + std::to_string(thread));
  }
  struct Last {
    std::uint64_t at = 0;
    std::int64_t value = -1;
    bool wanted = false;
    std::vector<Sequence*> of;
  };
  std::vector<Last> sites(sites_.size());
  const auto site = [&](std::uint32_t number) {
    if (number >= sites.size()) throw InputError(path_ + " has no such instruction");
    return &sites[number];
  };
  for (Sequence& s : sequences) {
    site(s.site)->of.push_back(&s);
    if (s.other != kNoSite) site(s.other)->wanted = true;
  }
  std::size_t unfinished = sequences.size();
  const auto define = [&](std::uint64_t caller, std::uint32_t, std::uint32_t) {
    return numbers_.at(caller);
  };
  const auto visit = [&](const Access& a, std::uint64_t) {
    Last& known = sites[a.site];
    if (known.wanted) {
      known.at = a.at;
      known.value = a.value;
    }
    for (Sequence* const s : known.of) {
      if (std::ssize(s->at) == most) continue;
      s->at.push_back(a.at);
      if (s->other != kNoSite) {
        s->from.push_back(sites[s->other].at);
        s->value.push_back(sites[s->other].value);
      }
      if (std::ssize(s->at) == most) --unfinished;
    }
    return unfinished > 0;
  };
  walk(static_cast<std::size_t>(thread), define, visit);
}

}  // namespace memkern
