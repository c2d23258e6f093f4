// Gather and scatter between a sparse array over all ranks and a dense buffer of each rank. Here
// one operation moves each element; a library may have other methods.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/planned.hpp"
#include "backends/ranks/settings.hpp"
#include "core/parts.hpp"
#include "engine/device.hpp"
#include "families/spatter/args.hpp"

namespace memkern::ranks {

// The elements that a rank moves, in the order of its instances: their positions in the sparse
// array and in the rank's row of the dense buffer. There are none if this row is not on this rank.
struct Moves {
  std::byte* dense = nullptr;
  std::vector<std::int64_t> sparse_at;
  std::vector<std::int64_t> dense_at;
};

// A range of an array of T.
template <class L, class T>
std::vector<std::int64_t> local_copy(const void* array, Range range) {
  std::vector<T> all(static_cast<std::size_t>(range.end - range.begin));
  arrays<L>().read(all.data(),
                   reinterpret_cast<const std::byte*>(static_cast<const T*>(array) + range.begin),
                   std::ssize(all) * std::int64_t{sizeof(T)});
  return {all.begin(), all.end()};
}

// The indices of a pattern, through the outer ones if there are any.
template <class L, class I>
std::vector<std::int64_t> pattern_of(const void* index, const void* outer, std::int64_t length) {
  std::vector<std::int64_t> pattern = local_copy<L, I>(index, {0, length});
  if (outer == nullptr) return pattern;
  const std::int64_t reach = *std::max_element(pattern.begin(), pattern.end()) + 1;
  const auto outers = local_copy<L, I>(outer, {0, reach});
  for (std::int64_t& i : pattern) i = outers[static_cast<std::size_t>(i)];
  return pattern;
}

template <class L, class T, class I>
Moves moves_of(const SpatterArgs& args, SpatterOp op, Range range) {
  Moves moves;
  const auto* row = static_cast<const std::byte*>(args.dense) +
                    L::rank() * args.dense_stride * std::int64_t{sizeof(T)};
  const auto first = arrays<L>().place_of(row);
  const auto last = arrays<L>().place_of(row + args.dense_stride * std::int64_t{sizeof(T)} - 1);
  if (first.rank != L::rank() || last.rank != L::rank()) return moves;
  moves.dense = L::own(*first.memory) + first.at;
  const SpatterArgs::Walk& walk = gathers(op) ? args.gather_walk : args.scatter_walk;
  const auto pattern = pattern_of<L, I>(gathers(op) ? args.gather_index : args.scatter_index,
                                        args.outer_index, args.length);
  const auto prefix = local_copy<L, std::int64_t>(walk.prefix, {0, walk.cycle});
  const Range own = contiguous_part(range.end - range.begin, L::ranks(), L::rank());
  for (std::int64_t n = range.begin + own.begin; n < range.begin + own.end; ++n) {
    const std::int64_t base = walk.origin + n / walk.cycle * walk.period +
                              prefix[static_cast<std::size_t>(n % walk.cycle)];
    for (std::int64_t j = 0; j < args.length; ++j) {
      moves.sparse_at.push_back(base + pattern[static_cast<std::size_t>(j)]);
      moves.dense_at.push_back(n % args.wrap * args.length + j);
    }
  }
  return moves;
}

// Elements T, which are copied as words of their size, by indices I. All ranks construct a method
// together, from the sparse array, the direction and this rank's moves; run(settings) executes
// them.
template <class L, template <class, class> class Method, class T, class I, SpatterOp kOp>
class Gather {
 public:
  using Args = SpatterArgs;
  static const void* key(const Args& args) { return args.dense; }
  Gather(const Args& args, Range range)
      : method_(static_cast<const std::byte*>(gathers(kOp) ? args.source : args.target),
                gathers(kOp), moves_of<L, T, I>(args, kOp, range)) {}
  void run(const Settings& settings) const { method_.run(settings); }

 private:
  Method<L, T> method_;
};

// Loads or stores each element by a separate operation; elements of this rank directly.
template <class L, class T>
class Single {
 public:
  Single(const std::byte* sparse, bool gathers, Moves moves)
      : sparse_(sparse), gathers_(gathers), moves_(std::move(moves)) {}

  void run(const Settings& settings) const {
    typename L::Context context(settings.private_contexts);
    gathers_ ? move<true>(context, settings.flush_every)
             : move<false>(context, settings.flush_every);
  }

 private:
  template <bool kGathers>
  void move(typename L::Context& context, std::int64_t batch) const {
    constexpr std::int64_t kSize = sizeof(T);
    std::int64_t pending = 0;
    for (std::size_t k = 0; k < moves_.sparse_at.size(); ++k) {
      const auto place = arrays<L>().place_of(sparse_ + moves_.sparse_at[k] * kSize);
      std::byte* const dense = moves_.dense + moves_.dense_at[k] * kSize;
      if (place.rank == L::rank()) {
        std::byte* const own = L::own(*place.memory) + place.at;
        std::memcpy(kGathers ? dense : own, kGathers ? own : dense, sizeof(T));
        continue;
      }
      if constexpr (kGathers) {
        context.start_get(place, dense, kSize);
      } else {
        context.start_put(place, dense, kSize);
      }
      if (batch == 1) {
        context.complete(place);
      } else if (++pending == batch) {
        context.complete_all(*place.memory);
        pending = 0;
      }
    }
    if (pending > 0) context.complete_all(*arrays<L>().place_of(sparse_).memory);
  }

  const std::byte* sparse_;
  bool gathers_;
  Moves moves_;
};

// Adds the entries of a method.
template <class L, template <class, class> class Method>
void add_gathers(std::vector<DeviceEntry>& all, const char* variant) {
  const auto add = [&]<class T, class I, SpatterOp kOp>(const char* kernel, const char* dtype,
                                                        const char* index) {
    using G = Gather<L, Method, T, I, kOp>;
    all.push_back(Planned<G>::entry(kernel, variant, dtype, index));
  };
  const auto add_types = [&]<SpatterOp kOp>(const char* kernel) {
    using W = std::uint64_t;
    using H = std::uint32_t;
    add.template operator()<W, std::int64_t, kOp>(kernel, "float64", "int64");
    add.template operator()<W, std::int32_t, kOp>(kernel, "float64", "int32");
    add.template operator()<H, std::int64_t, kOp>(kernel, "float32", "int64");
    add.template operator()<H, std::int32_t, kOp>(kernel, "float32", "int32");
  };
  add_types.template operator()<SpatterOp::Gather>("spatter.gather");
  add_types.template operator()<SpatterOp::Scatter>("spatter.scatter");
  add_types.template operator()<SpatterOp::MultiGather>("spatter.multigather");
  add_types.template operator()<SpatterOp::MultiScatter>("spatter.multiscatter");
}

}  // namespace memkern::ranks
