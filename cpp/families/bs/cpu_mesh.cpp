// The finite-element streaming tests BS6 to BS8 (Chalmers and Warburton 2020): gather, scatter and
// both between the nodes of elements and the unique nodes of their mesh. A row of Z has at most one
// entry, which is 1. A gather has Z^T as row starts and columns, a scatter has Z as one id per row,
// which is negative if the row is empty.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/bs/cpu_mesh.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/streaming/cpu-inl.hpp"
#include "simd/load_index-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

// Rows between two bursts of prefetches.
constexpr std::int64_t kRows = 16;
// Every fifth entry is prefetched, because neighbouring entries share cache lines. An odd step
// covers all copies of nodes that several elements share.
constexpr std::int64_t kStep = 5;

// With software prefetch, prefetches the values `distance` entries ahead of rows [r, stop).
template <class T, class I>
MEMKERN_INLINE void prefetch_rows(const StreamingArgs& args, const void* values, std::int64_t r,
                                  std::int64_t stop) {
  if (args.distance == 0) return;
  const I* starts = static_cast<const I*>(args.index[0]);
  const I* column = static_cast<const I*>(args.index[1]);
  const std::int64_t last = starts[args.rows];
  const std::int64_t until = starts[stop] + args.distance;
  for (std::int64_t j = starts[r] + args.distance; j < until && j < last; j += kStep) {
    __builtin_prefetch(static_cast<const T*>(values) + column[j]);
  }
}

// Entries [j, end) of a row of Z^T x. Most rows have one entry (a node inside an element), most
// others two (a node between two elements).
template <class T, class I>
MEMKERN_INLINE T row_sum(const I* HWY_RESTRICT column, const T* HWY_RESTRICT local, std::int64_t j,
                         std::int64_t end) {
  if (HWY_LIKELY(end == j + 1)) return local[column[j]];
  if (end == j + 2) return local[column[j]] + local[column[j + 1]];
  T sum = 0;
  for (; j < end; ++j) sum += local[column[j]];
  return sum;
}

// Non-temporal stores of single elements cost more than the sums. Therefore a burst of rows is
// collected in a buffer and stored as vectors, after the sums of the next burst: by then the
// buffered values are in the cache.
template <class T>
struct Staged {
  alignas(64) T burst[2][kRows];
  T* pending = nullptr;
  int at = 0;

  MEMKERN_INLINE T* next() { return burst[at]; }
  MEMKERN_INLINE void store_later([[maybe_unused]] T* to) {
    flush();
    pending = to;
    at ^= 1;
  }
  MEMKERN_INLINE void flush() {
#if MEMKERN_SIMD
    if (pending == nullptr) return;
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t k = 0; k < kRows; k += lanes) {
      stream(hn::Load(d, burst[at ^ 1] + k), d, pending + k);
    }
#endif
  }
};

// Rows [r, end) one by one; returns the end.
template <class T, class I, class A>
MEMKERN_INLINE std::int64_t gather_rows(const StreamingArgs& args, const A& out, std::int64_t r,
                                        std::int64_t end) {
  const I* HWY_RESTRICT starts = static_cast<const I*>(args.index[0]);
  const I* HWY_RESTRICT column = static_cast<const I*>(args.index[1]);
  for (; r < end; ++r) {
    out.store(0, r,
              row_sum(column, static_cast<const T*>(args.stream[1]), starts[r], starts[r + 1]));
  }
  return end;
}

// x0 = Z^T x1
template <class T, class I, bool kNonTemporal>
void gather(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const I* HWY_RESTRICT starts = static_cast<const I*>(args.index[0]);
  const I* HWY_RESTRICT column = static_cast<const I*>(args.index[1]);
  const T* HWY_RESTRICT local = static_cast<const T*>(args.stream[1]);
  T* HWY_RESTRICT global = static_cast<T*>(args.stream[0]);
  const Single<T, kNonTemporal> out{args};
  constexpr bool kStages = kNonTemporal && MEMKERN_SIMD;
  [[maybe_unused]] Staged<T> staged;
  std::int64_t r = range.begin;
  if constexpr (kStages) {
    const std::int64_t misaligned =
        reinterpret_cast<std::uintptr_t>(global + r) / sizeof(T) % kRows;
    const std::int64_t aligned = r + (misaligned == 0 ? 0 : kRows - misaligned);
    r = gather_rows<T, I>(args, out, r, aligned < range.end ? aligned : range.end);
  }
  std::int64_t j = starts[r];
  for (; r + kRows <= range.end; r += kRows) {
    prefetch_rows<T, I>(*static_cast<const StreamingArgs*>(p), local, r, r + kRows);
    T* to = global + r;
    if constexpr (kStages) to = staged.next();
    // Unrolled, because the loop overhead is as large as the cost of a row with one entry.
    HWY_UNROLL(16)
    for (std::int64_t k = 0; k < kRows; ++k) {
      const std::int64_t end = starts[r + k + 1];
      const T sum = row_sum<T, I>(column, local, j, end);
      if constexpr (kStages) {
        to[k] = sum;
      } else {
        out.store(0, r + k, sum);
      }
      j = end;
    }
    if constexpr (kStages) staged.store_later(global + r);
  }
  if constexpr (kStages) staged.flush();
  gather_rows<T, I>(args, out, r, range.end);
  if constexpr (kNonTemporal) store_fence();
  do_not_optimize(args.stream[0]);
}

// Local nodes [i, end) of a scatter.
template <class T, class I, bool kNonTemporal>
MEMKERN_INLINE void scatter_range(const StreamingArgs& args, std::int64_t i, std::int64_t end) {
  const I* HWY_RESTRICT id = static_cast<const I*>(args.index[0]);
  const T* HWY_RESTRICT global = static_cast<const T*>(args.stream[1]);
  const Single<T, kNonTemporal> out{args};
#if MEMKERN_SIMD
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<hn::ScalableTag<T>> di;
  T* HWY_RESTRICT local = static_cast<T*>(args.stream[0]);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if constexpr (kNonTemporal) {
    // Non-temporal stores need aligned vectors.
    const auto vector_B = static_cast<std::uintptr_t>(lanes) * sizeof(T);
    for (; i < end && reinterpret_cast<std::uintptr_t>(local + i) % vector_B != 0; ++i) {
      if (id[i] >= 0) out.store(0, i, global[id[i]]);
    }
  }
  for (; i + lanes <= end; i += lanes) {
    const auto ids = load_index<T>(id + i);
    if (HWY_LIKELY(hn::AllFalse(di, hn::Lt(ids, hn::Zero(di))))) {
      const auto values = hn::GatherIndex(d, global, ids);
      if constexpr (kNonTemporal) {
        stream(values, d, local + i);
      } else {
        hn::StoreU(values, d, local + i);
      }
    } else {
      for (std::int64_t k = i; k < i + lanes; ++k) {
        if (id[k] >= 0) local[k] = global[id[k]];
      }
    }
  }
#endif
  for (; i < end; ++i) {
    if (id[i] >= 0) out.store(0, i, global[id[i]]);
  }
}

// x0 = Z x1; elements of empty rows are not changed
template <class T, class I, bool kNonTemporal>
void scatter(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const I* HWY_RESTRICT id = static_cast<const I*>(args.index[0]);
  constexpr std::int64_t kLine = kLine_B / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t kBurst = kBurst_B / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = range.begin; i < range.end;) {
    std::int64_t stop = range.end;
    if (args.distance > 0) {
      if (stop - i > kBurst) stop = i + kBurst;
      // Neighbours share lines: one id in the middle of each line is enough.
      const std::int64_t until =
          stop + args.distance < args.rows ? stop + args.distance : args.rows;
      for (std::int64_t k = i + args.distance + kLine / 2; k < until; k += kLine) {
        // A masked id refers to the element before the first, which may be prefetched.
        __builtin_prefetch(static_cast<const T*>(args.stream[1]) + id[k]);
      }
    }
    scatter_range<T, I, kNonTemporal>(args, i, stop);
    i = stop;
  }
  if constexpr (kNonTemporal) store_fence();
  do_not_optimize(args.stream[0]);
}

// x0 = Z Z^T x0, row by row of Z^T
template <class T, class I, bool>
void gather_scatter(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const I* HWY_RESTRICT starts = static_cast<const I*>(args.index[0]);
  const I* HWY_RESTRICT column = static_cast<const I*>(args.index[1]);
  T* local = static_cast<T*>(args.stream[0]);
  std::int64_t begin = starts[range.begin];
  for (std::int64_t r = range.begin; r < range.end;) {
    const std::int64_t stop = r + kRows < range.end ? r + kRows : range.end;
    prefetch_rows<T, I>(*static_cast<const StreamingArgs*>(p), local, r, stop);
    for (; r < stop; ++r) {
      const std::int64_t end = starts[r + 1];
      if (HWY_LIKELY(end == begin + 1)) {
        // Read and written anyway, as in the definition.
        T* node = local + column[begin];
        const T sum = *node;
        do_not_optimize(node);
        *node = sum;
      } else {
        T sum = 0;
        for (std::int64_t j = begin; j < end; ++j) sum += local[column[j]];
        for (std::int64_t j = begin; j < end; ++j) local[column[j]] = sum;
      }
      begin = end;
    }
  }
  do_not_optimize(local);
}

// clang-format off
#undef MEMKERN_MESH  // may differ from target to target
#define MEMKERN_TYPES(name, indices, body, variant, nontemporal)                                     \
  {name, variant, "float64", "int32", body<double, std::int32_t, nontemporal>, nullptr, 0, indices}, \
  {name, variant, "float64", "int64", body<double, std::int64_t, nontemporal>, nullptr, 0, indices}, \
  {name, variant, "float32", "int32", body<float, std::int32_t, nontemporal>, nullptr, 0, indices},  \
  {name, variant, "float32", "int64", body<float, std::int64_t, nontemporal>, nullptr, 0, indices},
#if MEMKERN_NT_VARIANT
#define MEMKERN_MESH(name, indices, body)                    \
  MEMKERN_TYPES(name, indices, body, MEMKERN_VARIANT, false) \
  MEMKERN_TYPES(name, indices, body, "nt", true)
#else
#define MEMKERN_MESH(name, indices, body) \
  MEMKERN_TYPES(name, indices, body, MEMKERN_VARIANT, false)
#endif

constexpr Entry kEntries[] = {
    MEMKERN_MESH("bs.bs6", 2, gather)
    MEMKERN_MESH("bs.bs7", 1, scatter)
    MEMKERN_TYPES("bs.bs8", 2, gather_scatter, MEMKERN_VARIANT, false)
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
