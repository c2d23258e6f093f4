// Gather, scatter, gather-scatter and their two-level forms (Lavin et al., "Evaluating Gather and
// Scatter Performance on CPUs and GPUs", MEMSYS 2020). Instance n moves `length` values between a
// sparse array, from base(n) on, and the private dense buffer of the worker.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/spatter/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/spatter/args.hpp"

#include <algorithm>

#include "simd/load_index-inl.hpp"
#include "simd/nontemporal.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Op = SpatterOp;

// Positions of the loads and stores of one instance.
template <class T>
struct Places {
  const T* HWY_RESTRICT from;
  T* HWY_RESTRICT to;
};

#if MEMKERN_SIMD

template <class T>
using Tag = hn::ScalableTag<T>;

template <class T, class I, Op kOp>
HWY_INLINE void move_vector(const SpatterArgs& a, Places<T> at, std::int64_t j) {
  const Tag<T> d;
  const I* gather = static_cast<const I*>(a.gather_index);
  const I* scatter = static_cast<const I*>(a.scatter_index);
  [[maybe_unused]] const I* outer = static_cast<const I*>(a.outer_index);
  if constexpr (kOp == Op::Gather) {
    hn::StoreU(hn::GatherIndex(d, at.from, load_index<T>(gather + j)), d, at.to + j);
  } else if constexpr (kOp == Op::Scatter) {
    hn::ScatterIndex(hn::LoadU(d, at.from + j), d, at.to, load_index<T>(scatter + j));
  } else if constexpr (kOp == Op::GatherScatter) {
    hn::ScatterIndex(hn::GatherIndex(d, at.from, load_index<T>(gather + j)), d, at.to,
                     load_index<T>(scatter + j));
  } else {
    // Outer indices are gathered with their own width, for one vector of inner indices at a time.
    const hn::ScalableTag<I> di;
    HWY_ALIGN I middle[hn::MaxLanes(di) > hn::MaxLanes(d) ? hn::MaxLanes(di) : hn::MaxLanes(d)];
    const I* inner = kOp == Op::MultiGather ? gather : scatter;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t k = 0; k < lanes; k += static_cast<std::int64_t>(hn::Lanes(di))) {
      if constexpr (hn::MaxLanes(di) > hn::MaxLanes(d)) {
        const hn::Rebind<I, Tag<T>> part;
        hn::StoreU(hn::GatherIndex(part, outer, hn::LoadU(part, inner + j)), part, middle);
      } else {
        hn::StoreU(hn::GatherIndex(di, outer, hn::LoadU(di, inner + j + k)), di, middle + k);
      }
    }
    const auto index = load_index<T>(static_cast<const I*>(middle));
    if constexpr (kOp == Op::MultiGather) {
      hn::StoreU(hn::GatherIndex(d, at.from, index), d, at.to + j);
    } else {
      hn::ScatterIndex(hn::LoadU(d, at.from + j), d, at.to, index);
    }
  }
}

#endif

template <class T, class I, Op kOp>
MEMKERN_INLINE void move_element(const SpatterArgs& a, Places<T> at, std::int64_t j) {
  const I* HWY_RESTRICT gather = static_cast<const I*>(a.gather_index);
  const I* HWY_RESTRICT scatter = static_cast<const I*>(a.scatter_index);
  const I* HWY_RESTRICT outer = static_cast<const I*>(a.outer_index);
  if constexpr (kOp == Op::Gather) at.to[j] = at.from[gather[j]];
  if constexpr (kOp == Op::Scatter) at.to[scatter[j]] = at.from[j];
  if constexpr (kOp == Op::GatherScatter) at.to[scatter[j]] = at.from[gather[j]];
  if constexpr (kOp == Op::MultiGather) at.to[j] = at.from[outer[gather[j]]];
  if constexpr (kOp == Op::MultiScatter) at.to[outer[scatter[j]]] = at.from[j];
}

// kLength is the length of the pattern if it is a compile-time constant, else 0.
template <class T, class I, Op kOp, std::int64_t kLength>
MEMKERN_INLINE void instance(const SpatterArgs& a, Places<T> at, std::int64_t length) {
  if constexpr (kLength != 0) length = kLength;
  std::int64_t j = 0;
#if MEMKERN_SIMD
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag<T>()));
  for (; j + lanes <= length; j += lanes) move_vector<T, I, kOp>(a, at, j);
#endif
  MEMKERN_LOOP
  for (std::int64_t i = j; i < length; ++i) move_element<T, I, kOp>(a, at, i);
}

// kSimple: one delta and one row of the dense buffer, as in most patterns.
template <class T, class I, Op kOp, std::int64_t kLength, bool kSimple, bool kPrefetch>
MEMKERN_INLINE void instances(const SpatterArgs& args, Range range, int worker) {
  T* dense = static_cast<T*>(args.dense) + worker * args.dense_stride;
  const T* source = static_cast<const T*>(args.source);
  T* target = static_cast<T*>(args.target);
  const SpatterArgs::Walk& walk = gathers(kOp) ? args.gather_walk : args.scatter_walk;
  SpatterBase<kSimple> gather_base(gathers(kOp) ? args.gather_walk : walk, range.begin);
  SpatterBase<kSimple> scatter_base(scatters(kOp) ? args.scatter_walk : walk, range.begin);
  SpatterBase<kSimple> ahead(walk, range.begin + args.distance);
  const std::int64_t length = args.length;
  const std::int64_t dense_end = length * args.wrap;
  std::int64_t row = kSimple ? 0 : range.begin % args.wrap * length;

  for (std::int64_t n = range.begin; n < range.end; ++n) {
    if constexpr (kPrefetch) {
      const T* next = (gathers(kOp) ? source : target) + ahead.value();
      for (std::int64_t i = 0; i < args.lines; ++i) {
        __builtin_prefetch(next + args.line_index[i], gathers(kOp) ? 0 : 1);
      }
      ahead.next();
    }
    Places<T> at{};
    at.from = gathers(kOp) ? source + gather_base.value() : dense + row;
    at.to = scatters(kOp) ? target + scatter_base.value() : dense + row;
    instance<T, I, kOp, kLength>(args, at, length);
    do_not_optimize(at.to);
    if constexpr (gathers(kOp)) gather_base.next();
    if constexpr (scatters(kOp)) scatter_base.next();
    if constexpr (!kSimple) {
      row += length;
      if (row == dense_end) row = 0;
    }
  }
}

// Lists of indices, and the values that they access, from element `by` of the pattern on.
template <class T, class I, Op kOp>
MEMKERN_INLINE void skip(SpatterArgs& a, Places<T>& at, std::int64_t by) {
  if constexpr (gathers(kOp)) {
    a.gather_index = static_cast<const I*>(a.gather_index) + by;
  } else {
    at.from += by;
  }
  if constexpr (scatters(kOp)) {
    a.scatter_index = static_cast<const I*>(a.scatter_index) + by;
  } else {
    at.to += by;
  }
  a.length -= by;
}

// Calls `move` for each instance of a divided pattern with the lists of some blocks of indices and
// the values that they access, of which there are so many.
template <class T, class I, Op kOp, class F>
MEMKERN_INLINE void in_blocks(const SpatterArgs& args, Range range, const F& move) {
  const std::int64_t begin = range.begin * SpatterArgs::kBlock;
  const std::int64_t end = std::min(range.end * SpatterArgs::kBlock, args.length);
  SpatterBase<false> gather_base(gathers(kOp) ? args.gather_walk : args.scatter_walk, 0);
  SpatterBase<false> scatter_base(scatters(kOp) ? args.scatter_walk : args.gather_walk, 0);
  for (std::int64_t n = 0; n < args.count; ++n) {
    SpatterArgs a = args;
    T* dense = static_cast<T*>(args.dense) + n % args.wrap * args.length;
    Places<T> at{};
    at.from = gathers(kOp) ? static_cast<const T*>(args.source) + gather_base.value() : dense;
    at.to = scatters(kOp) ? static_cast<T*>(args.target) + scatter_base.value() : dense;
    skip<T, I, kOp>(a, at, begin);
    move(a, at, end - begin);
    do_not_optimize(at.to);
    gather_base.next();
    scatter_base.next();
  }
}

// As `instance`, and prefetches the values that are accessed `distance` elements later.
template <class T, class I, Op kOp>
MEMKERN_INLINE void with_prefetch(SpatterArgs a, Places<T> at, std::int64_t length) {
  const I* outer = static_cast<const I*>(a.outer_index);
  while (length > 0) {
    const std::int64_t size = std::min(SpatterArgs::kBlock, length);
    const I* list = static_cast<const I*>(gathers(kOp) ? a.gather_index : a.scatter_index);
    for (std::int64_t i = a.distance; i < std::min(a.distance + size, a.length); ++i) {
      const auto index = static_cast<std::int64_t>(list[i]);
      const T* next = (gathers(kOp) ? at.from : at.to) + (outer == nullptr ? index : outer[index]);
      __builtin_prefetch(next, gathers(kOp) ? 0 : 1);
    }
    instance<T, I, kOp, 0>(a, at, size);
    skip<T, I, kOp>(a, at, size);
    length -= size;
  }
}

template <class T, class I, Op kOp>
void body(const void* p, Range range, int worker) {
  // A local copy, which no pointer can alias, stays in registers.
  const SpatterArgs a = *static_cast<const SpatterArgs*>(p);
  const bool simple = a.wrap == 1 && a.gather_walk.cycle == 1 && a.scatter_walk.cycle == 1;
  if (a.divided() && a.distance > 0) {
    in_blocks<T, I, kOp>(a, range, [](const SpatterArgs& b, Places<T> at, std::int64_t length) {
      with_prefetch<T, I, kOp>(b, at, length);
    });
  } else if (a.divided()) {
    in_blocks<T, I, kOp>(a, range, [](const SpatterArgs& b, Places<T> at, std::int64_t length) {
      instance<T, I, kOp, 0>(b, at, length);
    });
  } else if (a.distance > 0) {
    instances<T, I, kOp, 0, false, true>(a, range, worker);
  } else if (!simple) {
    instances<T, I, kOp, 0, false, false>(a, range, worker);
  } else if (a.length == 8) {
    instances<T, I, kOp, 8, true, false>(a, range, worker);
  } else if (a.length == 16) {
    instances<T, I, kOp, 16, true, false>(a, range, worker);
  } else {
    instances<T, I, kOp, 0, true, false>(a, range, worker);
  }
}

#if HWY_ARCH_X86_64 && MEMKERN_NONTEMPORAL

template <class T, class I, Op kOp>
MEMKERN_INLINE void store_instance(const SpatterArgs& a, Places<T> at, std::int64_t length) {
  const I* gather = static_cast<const I*>(a.gather_index);
  const I* scatter = static_cast<const I*>(a.scatter_index);
  const I* outer = static_cast<const I*>(a.outer_index);
  for (std::int64_t j = 0; j < length; ++j) {
    if constexpr (kOp == Op::GatherScatter) {
      store_nontemporal(at.to + scatter[j], at.from[gather[j]]);
    } else if constexpr (kOp == Op::MultiScatter) {
      store_nontemporal(at.to + outer[scatter[j]], at.from[j]);
    } else {
      store_nontemporal(at.to + scatter[j], at.from[j]);
    }
  }
}

// Variant with non-temporal stores.
template <class T, class I, Op kOp>
void nontemporal(const void* p, Range range, int worker) {
  const SpatterArgs a = *static_cast<const SpatterArgs*>(p);
  if (a.divided()) {
    in_blocks<T, I, kOp>(a, range, [](const SpatterArgs& b, Places<T> at, std::int64_t length) {
      store_instance<T, I, kOp>(b, at, length);
    });
    store_fence();
    return;
  }
  const T* dense = static_cast<const T*>(a.dense) + worker * a.dense_stride;
  SpatterBase<false> gather_base(kOp == Op::GatherScatter ? a.gather_walk : a.scatter_walk,
                                 range.begin);
  SpatterBase<false> scatter_base(a.scatter_walk, range.begin);
  const std::int64_t dense_end = a.length * a.wrap;
  std::int64_t row = range.begin % a.wrap * a.length;
  for (std::int64_t n = range.begin; n < range.end; ++n) {
    Places<T> at{};
    at.from = kOp == Op::GatherScatter ? static_cast<const T*>(a.source) + gather_base.value()
                                       : dense + row;
    at.to = static_cast<T*>(a.target) + scatter_base.value();
    store_instance<T, I, kOp>(a, at, a.length);
    do_not_optimize(at.to);
    gather_base.next();
    scatter_base.next();
    row += a.length;
    if (row == dense_end) row = 0;
  }
  store_fence();
}

#define MEMKERN_NT_ENTRY(name, op, T, I, dtype, index) \
  {"spatter." name, "nt", dtype, index, nontemporal<T, I, op>, nullptr},
#else
#define MEMKERN_NT_ENTRY(name, op, T, I, dtype, index)
#endif

#define MEMKERN_ENTRY(name, op, T, I, dtype, index) \
  {"spatter." name, MEMKERN_VARIANT, dtype, index, body<T, I, op>, nullptr},
// clang-format off
#define MEMKERN_TYPES(entry, name, op)                       \
  entry(name, op, double, std::int64_t, "float64", "int64")  \
  entry(name, op, double, std::int32_t, "float64", "int32")  \
  entry(name, op, float, std::int64_t, "float32", "int64")   \
  entry(name, op, float, std::int32_t, "float32", "int32")

constexpr Entry kEntries[] = {
    MEMKERN_TYPES(MEMKERN_ENTRY, "gather", Op::Gather)
    MEMKERN_TYPES(MEMKERN_ENTRY, "scatter", Op::Scatter)
    MEMKERN_TYPES(MEMKERN_ENTRY, "gs", Op::GatherScatter)
    MEMKERN_TYPES(MEMKERN_ENTRY, "multigather", Op::MultiGather)
    MEMKERN_TYPES(MEMKERN_ENTRY, "multiscatter", Op::MultiScatter)
    MEMKERN_TYPES(MEMKERN_NT_ENTRY, "scatter", Op::Scatter)
    MEMKERN_TYPES(MEMKERN_NT_ENTRY, "gs", Op::GatherScatter)
    MEMKERN_TYPES(MEMKERN_NT_ENTRY, "multiscatter", Op::MultiScatter)
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
