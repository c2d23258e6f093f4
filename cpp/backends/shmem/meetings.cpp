#include "backends/shmem/meetings.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "backends/shmem/library.hpp"
#include "core/errors.hpp"

// Function of Open MPI. Data that the network hardware does not write itself arrive only in this
// function and in operations that wait for other processes.
extern "C" [[gnu::weak]] void opal_progress();

namespace memkern::shmem {
namespace {

// Memory for the contents of all processes, with at least some bytes for each.
constexpr std::int64_t kAll_B = std::int64_t{1} << 20;
constexpr std::int64_t kLeast_B = 512;
constexpr std::int64_t kMost_B = std::int64_t{1} << 16;
constexpr std::int64_t kLength_B = sizeof(std::int64_t);

}  // namespace

Meetings::Meetings()
    : most_B_(std::clamp(kAll_B / Library::ranks(), kLeast_B, kMost_B)),
      slot_B_(kLength_B + most_B_) {
  const auto ranks = static_cast<std::size_t>(Library::ranks());
  slots_ = Library::allocate(2 * slot_B_ * Library::ranks()).own;
  begun_ = reinterpret_cast<long*>(
      Library::allocate(static_cast<std::int64_t>(ranks * sizeof(long))).own);
  std::fill_n(begun_, ranks, 0);
  shmem_barrier_all();
}

void Meetings::bring(std::string_view content) {
  const std::int64_t bytes = std::ssize(content);
  if (bytes > most_B_) {
    throw InputError("a meeting's content must have at most " + std::to_string(most_B_) +
                     " bytes, not " + std::to_string(bytes));
  }
  own_.resize(static_cast<std::size_t>(kLength_B + bytes));
  std::memcpy(own_.data(), &bytes, sizeof bytes);
  std::memcpy(own_.data() + kLength_B, content.data(), content.size());
  for (int rank = 0; rank < Library::ranks(); ++rank) {
    shmem_putmem(slot(number_ + 1, Library::rank()), own_.data(), own_.size(), rank);
  }
  // Before the flags that signal the start of the meeting.
  shmem_fence();
}

void Meetings::begin() {
  ++number_;
  complete_ = 0;
  for (int rank = 0; rank < Library::ranks(); ++rank) {
    shmem_long_p(begun_ + Library::rank(), number_, rank);
  }
}

bool Meetings::complete() {
  while (complete_ < Library::ranks()) {
    if (shmem_long_test(begun_ + complete_, SHMEM_CMP_GE, number_) == 0) {
      if (opal_progress != nullptr) opal_progress();
      return false;
    }
    ++complete_;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

std::vector<int> Meetings::missing() const {
  std::vector<int> found;
  for (int rank = 0; rank < Library::ranks(); ++rank) {
    if (shmem_long_test(begun_ + rank, SHMEM_CMP_GE, number_) == 0) found.push_back(rank);
  }
  return found;
}

std::vector<std::string> Meetings::contents() const {
  // This process may end now, while its own puts are still on their way to the others.
  shmem_quiet();
  std::vector<std::string> all;
  for (int rank = 0; rank < Library::ranks(); ++rank) {
    const std::byte* from = slot(number_, rank);
    std::int64_t bytes = 0;
    std::memcpy(&bytes, from, sizeof bytes);
    bytes = std::clamp(bytes, std::int64_t{0}, most_B_);
    all.emplace_back(reinterpret_cast<const char*>(from + kLength_B),
                     static_cast<std::size_t>(bytes));
  }
  return all;
}

std::byte* Meetings::slot(long meeting, int rank) const {
  return slots_ + (meeting % 2 * Library::ranks() + rank) * slot_B_;
}

}  // namespace memkern::shmem
