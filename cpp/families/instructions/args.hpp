// Arguments of the loops over single instructions. All data stay in L1.
#pragma once

#include <cstdint>

namespace memkern {

struct InstructionArgs {
  static constexpr std::int64_t kLanes = 32;   // doubles of the longest vectors, of 2048 bits
  static constexpr std::int64_t kChains = 24;  // largest number of independent instructions
  static constexpr std::int64_t kValues = kChains * kLanes;
  static constexpr std::int64_t kTable = 512;  // values that are gathered
  static constexpr std::int64_t kMaxStride = 8;
  // Distance between words of atomics: two lines.
  static constexpr std::int64_t kApart = 16;
  // After the values of all chains: the numbers of chains and lanes.
  static constexpr std::int64_t kEnds = kValues + 2;
  double* ends = nullptr;          // kLanes values of each chain after its last instruction
  const double* starts = nullptr;  // and before its first one
  double* stored = nullptr;        // targets of each chain's stores
  const double* table = nullptr;   // kTable values: i at place i, and the same as integers
  const std::int64_t* places = nullptr;
  const std::int64_t* index = nullptr;  // kValues positions from which lanes are gathered
  std::uint64_t* words = nullptr;       // of atomics
};

}  // namespace memkern
