// Gather and scatter at moving bases (Lavin et al., MEMSYS 2020): arguments shared by all
// techniques and by the code that prepares them.
#pragma once

#include <cstdint>

#include "core/body.hpp"

namespace memkern {

struct SpatterArgs {
  const void* source = nullptr;  // the sparse side that is read
  void* target = nullptr;        // the sparse side that is written
  void* dense = nullptr;         // worker w's copy starts at w * dense_stride elements
  std::int64_t dense_stride = 0;
  const void* gather_index = nullptr;   // `length` indices: gather, gs; inner ones of multigather
  const void* scatter_index = nullptr;  // likewise for stores
  const void* outer_index = nullptr;    // what the inner indices of multi-kernels point into
  std::int64_t length = 0;
  std::int64_t wrap = 1;
  // base(n) = origin + the sum of the first n deltas, which repeat after `cycle` instances.
  struct Walk {
    std::int64_t origin = 0;
    std::int64_t cycle = 1;
    const std::int64_t* delta = nullptr;
    const std::int64_t* prefix = nullptr;  // sums of the first 0..cycle-1 deltas
    std::int64_t period = 0;               // sum of all of them
  };
  Walk gather_walk;
  Walk scatter_walk;
  // Software prefetch: bases `distance` instances ahead, one index for each line touched.
  std::int64_t distance = 0;
  const std::int64_t* line_index = nullptr;
  std::int64_t lines = 0;
};

// Follows a Walk from instance to instance without multiplying; `kSingle` says that there is but
// one delta.
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
