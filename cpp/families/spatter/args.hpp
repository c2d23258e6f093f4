// Arguments of gather and scatter at moving bases (Lavin et al., MEMSYS 2020), for all techniques
// and the code that prepares them.
#pragma once

#include <cstdint>

#include "core/body.hpp"

namespace memkern {

struct SpatterArgs {
  const void* source = nullptr;  // sparse array that is read
  void* target = nullptr;        // sparse array that is written
  void* dense = nullptr;         // worker w's copy starts at w * dense_stride elements
  std::int64_t dense_stride = 0;
  const void* gather_index = nullptr;   // `length` indices of loads; inner ones of multigather
  const void* scatter_index = nullptr;  // `length` indices of stores; inner ones of multiscatter
  const void* outer_index = nullptr;    // multigather and multiscatter access outer[inner[j]]
  std::int64_t length = 0;
  std::int64_t count = 0;  // instances
  std::int64_t wrap = 1;   // rows of the dense buffer, used in turn
  // base(n) = origin + the sum of the first n deltas, which repeat after `cycle` instances.
  struct Walk {
    std::int64_t origin = 0;
    std::int64_t cycle = 1;
    const std::int64_t* delta = nullptr;
    const std::int64_t* prefix = nullptr;  // sums of the first 0..cycle-1 deltas
    std::int64_t period = 0;               // sum of all deltas of a cycle
  };
  Walk gather_walk;
  Walk scatter_walk;
  // Software prefetch: base `distance` instances ahead, with one index for each line that is
  // touched; `distance` elements ahead if the pattern is divided.
  std::int64_t distance = 0;
  const std::int64_t* line_index = nullptr;
  std::int64_t lines = 0;

  // A pattern with more blocks of indices than instances is divided among workers of a processor by
  // its indices: each moves its range of every instance, and the dense buffer is shared.
  static constexpr std::int64_t kBlock = 16;
  std::int64_t blocks() const { return (length + kBlock - 1) / kBlock; }
  bool divided() const { return blocks() > count; }

  // Largest lists of indices that fit in the shared memory of a block on every GPU.
  static constexpr std::int64_t kMaxLists_B = std::int64_t{48} * 1024;

  // Whether a thread of a GPU moves elements of several instances at a time: with one delta, one
  // row of the dense buffer, and lists of indices, of `index_B` bytes each, that fit a block.
  // Otherwise it moves one element, without unrolling.
  bool unrolls(std::int64_t index_B) const {
    const int lists = (gather_index != nullptr ? 1 : 0) + (scatter_index != nullptr ? 1 : 0);
    return wrap == 1 && gather_walk.cycle == 1 && scatter_walk.cycle == 1 &&
           length <= kMaxLists_B / (lists * index_B);
  }
};

// The kernels of the family.
enum class SpatterOp { Gather, Scatter, GatherScatter, MultiGather, MultiScatter };
MEMKERN_ANYWHERE constexpr bool gathers(SpatterOp op) {
  return op == SpatterOp::Gather || op == SpatterOp::GatherScatter || op == SpatterOp::MultiGather;
}
MEMKERN_ANYWHERE constexpr bool scatters(SpatterOp op) {
  return op == SpatterOp::Scatter || op == SpatterOp::GatherScatter ||
         op == SpatterOp::MultiScatter;
}

// The base of one instance after the other, computed without multiplications. kSingle: there is
// only one delta.
template <bool kSingle>
class SpatterBase {
 public:
  MEMKERN_INLINE SpatterBase(const SpatterArgs::Walk& walk, std::int64_t instance)
      : deltas_(walk.delta),
        delta_(walk.period),
        cycle_(walk.cycle),
        phase_(instance % walk.cycle),
        value_(walk.origin + instance / walk.cycle * walk.period + walk.prefix[phase_]) {}
  MEMKERN_INLINE std::int64_t value() const { return value_; }
  MEMKERN_INLINE void next() {
    if constexpr (kSingle) {
      value_ += delta_;
    } else {
      value_ += deltas_[phase_];
      phase_ = phase_ + 1 == cycle_ ? 0 : phase_ + 1;
    }
  }

 private:
  const std::int64_t* deltas_;
  std::int64_t delta_;
  std::int64_t cycle_;
  std::int64_t phase_;
  std::int64_t value_;
};

}  // namespace memkern
