// Meetings of all processes, each of which puts a content into the memory of all others. The caller
// waits for them, and can tell which processes do not come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memkern::shmem {

class Meetings {
 public:
  // Called by all processes together, as `begin` is. Throws MemoryError. Its memory is never freed.
  Meetings();

  // Most bytes that a process can bring to a meeting, the same for all.
  std::int64_t most_B() const { return most_B_; }
  // Puts what this process brings to the next meeting; throws InputError if it is too long.
  void bring(std::string_view content);
  // Begins the next meeting.
  void begin();
  // Whether all processes have begun this meeting.
  bool complete();
  // The processes that have not.
  std::vector<int> missing() const;
  // What each process has brought to this meeting, which is complete, if all have brought
  // something.
  std::vector<std::string> contents() const;

 private:
  // What a process has brought to a meeting: the number of bytes, and these.
  std::byte* slot(long meeting, int rank) const;

  std::int64_t most_B_;
  std::int64_t slot_B_;
  // A process writes to the slots of the next meeting while others still read those of this one,
  // but to the slots of the one after next only when all have begun the next.
  std::byte* slots_;
  long* begun_;  // the number of meetings that each process has begun
  long number_ = 0;
  int complete_ = 0;  // the processes that have begun this meeting, up to the first that has not
  std::vector<std::byte> own_;
};

}  // namespace memkern::shmem
