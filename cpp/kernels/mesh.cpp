// The finite-element streaming tests BS6 to BS8 (Chalmers and Warburton 2020): gather, scatter and
// both between the nodes of elements and the unique nodes of their mesh. Z has at most one one in
// a row; a gather knows Z^T by row starts and columns, a scatter knows Z by one id a row, negative
// where the row is empty.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mesh.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/kernel.hpp"
#include "kernels/load_index-inl.hpp"
#include "kernels/streaming-inl.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

// x0 = Z^T x1
template <class T, class I, bool kNonTemporal>
void gather(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const I* HWY_RESTRICT starts = static_cast<const I*>(args.index[0]);
  const I* HWY_RESTRICT column = static_cast<const I*>(args.index[1]);
  const T* HWY_RESTRICT local = static_cast<const T*>(args.stream[1]);
  const Single<T, kNonTemporal> out{args};
  std::int64_t j = starts[range.begin];
  for (std::int64_t r = range.begin; r < range.end; ++r) {
    const std::int64_t end = starts[r + 1];
    T sum = 0;
    for (; j < end; ++j) sum += local[column[j]];
    out.store(0, r, sum);
  }
  if constexpr (kNonTemporal) store_fence();
  keep(args.stream[0]);
}

// x0 = Z x1, elements of empty rows left as they are
template <class T, class I, bool kNonTemporal>
void scatter(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const I* HWY_RESTRICT id = static_cast<const I*>(args.index[0]);
  const T* HWY_RESTRICT global = static_cast<const T*>(args.stream[1]);
  const Single<T, kNonTemporal> out{args};
  std::int64_t i = range.begin;
#if MEMKERN_SIMD
  const hn::ScalableTag<T> d;
  T* HWY_RESTRICT local = static_cast<T*>(args.stream[0]);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if constexpr (kNonTemporal) {
    // Stores past the caches want aligned vectors.
    const auto vector_B = static_cast<std::uintptr_t>(lanes) * sizeof(T);
    for (; i < range.end && reinterpret_cast<std::uintptr_t>(local + i) % vector_B != 0; ++i) {
      if (id[i] >= 0) out.store(0, i, global[id[i]]);
    }
  }
  for (; i + lanes <= range.end; i += lanes) {
    const auto ids = load_index<T>(id + i);
    const hn::RebindToSigned<hn::ScalableTag<T>> di;
    const auto zero = hn::Zero(di);
    const auto masked = hn::Lt(ids, zero);
    if (HWY_LIKELY(hn::AllFalse(di, masked))) {
      const auto values = hn::GatherIndex(d, global, ids);
      if constexpr (kNonTemporal) {
        hn::Stream(values, d, local + i);
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
  for (; i < range.end; ++i) {
    if (id[i] >= 0) out.store(0, i, global[id[i]]);
  }
  if constexpr (kNonTemporal) store_fence();
  keep(args.stream[0]);
}

// x0 = Z Z^T x0, row by row of Z^T
template <class T, class I, bool>
void gather_scatter(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  const I* HWY_RESTRICT starts = static_cast<const I*>(args.index[0]);
  const I* HWY_RESTRICT column = static_cast<const I*>(args.index[1]);
  T* local = static_cast<T*>(args.stream[0]);
  std::int64_t begin = starts[range.begin];
  for (std::int64_t r = range.begin; r < range.end; ++r) {
    const std::int64_t end = starts[r + 1];
    T sum = 0;
    for (std::int64_t j = begin; j < end; ++j) sum += local[column[j]];
    for (std::int64_t j = begin; j < end; ++j) local[column[j]] = sum;
    begin = end;
  }
  keep(local);
}

// clang-format off
#undef MEMKERN_MESH  // may differ from target to target
#define MEMKERN_TYPES(name, streams, body, variant, past)                                     \
  {name, variant, "float64", "int32", body<double, std::int32_t, past>, nullptr, streams},    \
  {name, variant, "float64", "int64", body<double, std::int64_t, past>, nullptr, streams},    \
  {name, variant, "float32", "int32", body<float, std::int32_t, past>, nullptr, streams},     \
  {name, variant, "float32", "int64", body<float, std::int64_t, past>, nullptr, streams},
#if MEMKERN_STREAMS_PAST_CACHES
#define MEMKERN_MESH(name, streams, body)                                                     \
  MEMKERN_TYPES(name, streams, body, MEMKERN_VARIANT, false)                                  \
  MEMKERN_TYPES(name, streams, body, "nt", true)
#else
#define MEMKERN_MESH(name, streams, body)                                                     \
  MEMKERN_TYPES(name, streams, body, MEMKERN_VARIANT, false)
#endif

constexpr Entry kEntries[] = {
    MEMKERN_MESH("bs.bs6", 2, gather)
    MEMKERN_MESH("bs.bs7", 2, scatter)
    MEMKERN_TYPES("bs.bs8", 1, gather_scatter, MEMKERN_VARIANT, false)
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "core/targets.inc"
