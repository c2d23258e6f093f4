// Meetings of all processes, each of which puts a content into the memory of all others. The caller
// waits for completion, and can query the missing processes.
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

  // Largest content of a process in bytes, the same for all.
  std::int64_t most_B() const { return most_B_; }
  // Puts this process's content for the next meeting; throws InputError if it is too long.
  void bring(std::string_view content);
  // Begins the next meeting.
  void begin();
  // Whether all processes have begun this meeting.
  bool complete();
  // The processes that have not begun it.
  std::vector<int> missing() const;
  // The contents of all processes in this meeting, which is complete; every process must have put
  // one.
  std::vector<std::string> contents() const;

 private:
  // Content of a process in a meeting: the number of bytes, and the bytes.
  std::byte* slot(long meeting, int rank) const;

  std::int64_t most_B_;
  std::int64_t slot_B_;
  // A process may write to the slots of the next meeting while others still read this meeting's
  // slots. It writes to the slots of the meeting after the next only when all have begun the next.
  std::byte* slots_;
  long* begun_;  // the number of meetings that each process has begun
  long number_ = 0;
  int complete_ = 0;  // processes that have begun this meeting, up to the first that has not
  std::vector<std::byte> own_;
};

}  // namespace memkern::shmem
