// Arguments of the latency kernels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace memkern {

// Position of a chain of loads.
struct Chain {
  const std::byte* line = nullptr;
};

// A ring of lines: the first word of each is the address of the next one.
struct ChaseArgs {
  static constexpr std::int64_t kMaxChains = 32;
  // Column of `ends` after the last chain's: accesses so far.
  static constexpr std::int64_t kAccesses = kMaxChains;
  static constexpr std::int64_t kColumns = kMaxChains + 1;
  const std::byte* ring = nullptr;
  // Current position of each chain of each worker, kMaxChains per worker. It is kept between
  // invocations, so that the loads of one depend on the loads of the previous one.
  Chain* chains = nullptr;
  // Position of each chain in bytes from the start of the ring, and accesses so far; one row per
  // worker.
  std::uint64_t* ends = nullptr;
  std::int64_t ends_stride = 0;
  std::int64_t workers = 0;
};

// Each lane of a warp follows a chain through shared memory; at any time the lanes are `stride`
// words apart, and those whose words lie in the same bank wait for each other.
struct BanksArgs {
  static constexpr std::int64_t kWords = 4096;
  static constexpr std::int64_t kHop = 33;  // words from an access of a chain to the next
  static constexpr std::int64_t kMaxStride = 64;
  // The most threads of a block.
  static constexpr std::int64_t kColumns = 1024;
  std::int64_t stride = 1;
  // The last word of each thread's chain, one row per worker.
  std::uint64_t* ends = nullptr;
  std::int64_t ends_stride = 0;
  std::int64_t workers = 0;
};

// Worker 0 chases, the others move lines until it has finished.
struct LoadedArgs {
  // Lines that a generator moves between two pauses.
  static constexpr int kGroup = 8;
  // Columns of `tally`: lines loaded and stored so far, the sum of all words loaded, and the lines
  // of source and target at which the next group begins.
  static constexpr int kLoaded = 0;
  static constexpr int kStored = 1;
  static constexpr int kSum = 2;
  static constexpr int kFrom = 3;
  static constexpr int kTo = 4;
  static constexpr int kColumns = 5;
  ChaseArgs chase;
  const std::byte* source = nullptr;  // one row per worker, as is `target`
  std::byte* target = nullptr;
  std::int64_t row_stride_B = 0;
  std::int64_t lines = 0;  // of a row, at least kGroup
  std::int64_t line_B = 0;
  std::int64_t loads = 0;  // of the lines of a group; the others are stored
  std::int64_t pause = 0;  // dependent multiplications after each group
  // Bytes from the start of source and target to the next group, two numbers per worker.
  std::int64_t* places = nullptr;
  std::uint64_t* tally = nullptr;
  std::int64_t tally_stride = 0;
  std::atomic<bool>* finished = nullptr;  // whether worker 0 has finished
};

// Two workers write numbers in turn, each after reading the other's.
struct PingPongArgs {
  std::int64_t turns = 0;  // of each worker in an invocation
  // The words that worker 0 and worker 1 write: one for both, or two in different lines.
  std::uint64_t* words[2] = {nullptr, nullptr};
  // The next number that each worker waits for, in separate lines of up to 256 bytes.
  std::uint64_t* next = nullptr;
  static constexpr std::int64_t kNextStride = 32;
  // Columns of `tally`, one row per worker: turns so far, and unexpected numbers.
  static constexpr int kTurns = 0;
  static constexpr int kWrong = 1;
  static constexpr int kColumns = 2;
  std::uint64_t* tally = nullptr;
  std::int64_t tally_stride = 0;
};

}  // namespace memkern
