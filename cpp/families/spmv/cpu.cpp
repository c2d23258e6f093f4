// y = A x and y = y + A x for a sparse matrix A: by rows (CRS), by chunks of C rows stored column
// by column (SELL-C-sigma, Kreutzer et al. 2014; ELLPACK is one chunk with all rows), and by
// columns (CSC).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/spmv/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/spmv/args.hpp"
#include "simd/load_index-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T, class I>
struct Matrix {
  const T* HWY_RESTRICT values;
  const I* HWY_RESTRICT columns;
  const I* HWY_RESTRICT starts;
  const T* HWY_RESTRICT x;

  MEMKERN_INLINE explicit Matrix(const SpmvArgs& a)
      : values(static_cast<const T*>(a.values)),
        columns(static_cast<const I*>(a.columns)),
        starts(static_cast<const I*>(a.starts)),
        x(static_cast<const T*>(a.x)) {}
};

template <bool kAdd, class T>
MEMKERN_INLINE void store(T* y, T sum) {
  *y = kAdd ? *y + sum : sum;
}

constexpr std::int64_t kLine_B = 64;

// Prefetches the elements of x that are needed `distance` entries after entries [k, end), and with
// kHint also the matrix, 1 KiB ahead, as lines that are not to stay in the caches.
template <class T, class I, bool kHint>
MEMKERN_INLINE void prefetch(const SpmvArgs& a, std::int64_t k, std::int64_t end) {
  const I* columns = static_cast<const I*>(a.columns);
  if (a.distance > 0) {
    const std::int64_t last = end + a.distance < a.entries ? end + a.distance : a.entries;
    for (std::int64_t j = k + a.distance; j < last; ++j) {
      __builtin_prefetch(static_cast<const T*>(a.x) + columns[j]);
    }
  }
  if constexpr (kHint) {
    constexpr std::int64_t kAhead_B = 1024;
    constexpr auto kT = static_cast<std::int64_t>(sizeof(T));
    constexpr auto kI = static_cast<std::int64_t>(sizeof(I));
    for (std::int64_t j = k; j < end; j += kLine_B / kT) {
      __builtin_prefetch(static_cast<const T*>(a.values) + j + kAhead_B / kT, 0, 0);
    }
    for (std::int64_t j = k; j < end; j += kLine_B / kI) {
      __builtin_prefetch(columns + j + kAhead_B / kI, 0, 0);
    }
  }
}

#define MEMKERN_EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

// The sum of one row with kUnroll accumulators, which hide the latency of additions.
template <class T, class I, int kUnroll>
MEMKERN_INLINE T row_sum(const Matrix<T, I>& m, std::int64_t k, std::int64_t end) {
#if MEMKERN_SIMD
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
#define MEMKERN_DECLARE(u) [[maybe_unused]] auto sum##u = hn::Zero(d);
#define MEMKERN_STEP(u)                                    \
  if constexpr ((u) < kUnroll)                             \
    sum##u =                                               \
        hn::MulAdd(hn::LoadU(d, m.values + k + (u)*lanes), \
                   hn::GatherIndex(d, m.x, load_index<T>(m.columns + k + (u)*lanes)), sum##u);
#define MEMKERN_JOIN(u) \
  if constexpr (0 < (u) && (u) < kUnroll) sum0 = hn::Add(sum0, sum##u);
  MEMKERN_EIGHT(MEMKERN_DECLARE)
  for (; k + kUnroll * lanes <= end; k += kUnroll * lanes) {
    MEMKERN_EIGHT(MEMKERN_STEP)
  }
  MEMKERN_EIGHT(MEMKERN_JOIN)
  for (; k < end; k += lanes) {
    // Elements after the row belong to the next one, or are zeros: they are loaded, but not added.
    const auto mine = hn::FirstN(d, static_cast<std::size_t>(end - k < lanes ? end - k : lanes));
    const auto x = hn::GatherIndex(d, m.x, load_index<T>(m.columns + k));
    sum0 = hn::MulAdd(hn::IfThenElseZero(mine, hn::LoadU(d, m.values + k)),
                      hn::IfThenElseZero(mine, x), sum0);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum0));
#elif MEMKERN_AUTO
  T sum = 0;
  _Pragma("omp simd reduction(+ : sum)") for (std::int64_t j = k; j < end; ++j) sum +=
      m.values[j] * m.x[m.columns[j]];
  return sum;
#else
#define MEMKERN_DECLARE(u) [[maybe_unused]] T sum##u = 0;
#define MEMKERN_STEP(u) \
  if constexpr ((u) < kUnroll) sum##u += m.values[k + (u)] * m.x[m.columns[k + (u)]];
#define MEMKERN_JOIN(u) \
  if constexpr (0 < (u) && (u) < kUnroll) sum0 += sum##u;
  MEMKERN_EIGHT(MEMKERN_DECLARE)
  for (; k + kUnroll <= end; k += kUnroll) {
    MEMKERN_EIGHT(MEMKERN_STEP)
  }
  for (; k < end; ++k) sum0 += m.values[k] * m.x[m.columns[k]];
  MEMKERN_EIGHT(MEMKERN_JOIN)
  return sum0;
#endif
#undef MEMKERN_JOIN
#undef MEMKERN_STEP
#undef MEMKERN_DECLARE
}

template <class T, class I, bool kAdd, bool kHint, int kUnroll>
void crs(const void* p, Range range, int) {
  const SpmvArgs args = *static_cast<const SpmvArgs*>(p);
  const Matrix<T, I> m(args);
  T* HWY_RESTRICT y = static_cast<T*>(args.y);
  const bool prefetches = kHint || args.distance > 0;
  for (std::int64_t r = range.begin; r < range.end; ++r) {
    const std::int64_t begin = m.starts[r];
    const std::int64_t end = m.starts[r + 1];
    if (prefetches) prefetch<T, I, kHint>(args, begin, end);
    store<kAdd>(y + r, row_sum<T, I, kUnroll>(m, begin, end));
  }
  do_not_optimize(args.y);
}

// `rows` rows, whose first entries are contiguous from `first` on.
template <class T, class I, bool kAdd>
MEMKERN_INLINE void lanes_one_by_one(const Matrix<T, I>& m, T* y, std::int64_t rows,
                                     std::int64_t first, std::int64_t step, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    T sum = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t k = first + r + j * step;
      sum += m.values[k] * m.x[m.columns[k]];
    }
    store<kAdd>(y + r, sum);
  }
}

#if MEMKERN_SIMD
// kVectors vectors of rows.
template <class T, class I, bool kAdd, int kVectors>
MEMKERN_INLINE void lanes_at_once(const Matrix<T, I>& m, T* y, std::int64_t first,
                                  std::int64_t step, std::int64_t width) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
#define MEMKERN_DECLARE(u) [[maybe_unused]] auto sum##u = hn::Zero(d);
#define MEMKERN_STEP(u)                                    \
  if constexpr ((u) < kVectors)                            \
    sum##u =                                               \
        hn::MulAdd(hn::LoadU(d, m.values + k + (u)*lanes), \
                   hn::GatherIndex(d, m.x, load_index<T>(m.columns + k + (u)*lanes)), sum##u);
#define MEMKERN_STORE(u)                                                       \
  if constexpr ((u) < kVectors) {                                              \
    if constexpr (kAdd) sum##u = hn::Add(sum##u, hn::LoadU(d, y + (u)*lanes)); \
    hn::StoreU(sum##u, d, y + (u)*lanes);                                      \
  }
  MEMKERN_EIGHT(MEMKERN_DECLARE)
  std::int64_t k = first;
  for (std::int64_t j = 0; j < width; ++j, k += step) {
    MEMKERN_EIGHT(MEMKERN_STEP)
  }
  MEMKERN_EIGHT(MEMKERN_STORE)
#undef MEMKERN_STORE
#undef MEMKERN_STEP
#undef MEMKERN_DECLARE
}
#endif

// `rows` rows whose first entries are contiguous, in the largest pieces for which there is code.
template <class T, class I, bool kAdd>
MEMKERN_INLINE void block(const Matrix<T, I>& m, T* y, std::int64_t rows, std::int64_t first,
                          std::int64_t step, std::int64_t width) {
  std::int64_t r = 0;
#if MEMKERN_SIMD
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; r + 4 * lanes <= rows; r += 4 * lanes) {
    lanes_at_once<T, I, kAdd, 4>(m, y + r, first + r, step, width);
  }
  for (; r + 2 * lanes <= rows; r += 2 * lanes) {
    lanes_at_once<T, I, kAdd, 2>(m, y + r, first + r, step, width);
  }
  for (; r + lanes <= rows; r += lanes) {
    lanes_at_once<T, I, kAdd, 1>(m, y + r, first + r, step, width);
  }
#else
  // In blocks that are small enough for the compiler to keep the sums in registers.
  constexpr std::int64_t kPiece = MEMKERN_AUTO ? 16 : 8;
  for (; r + kPiece <= rows; r += kPiece) {
    T sum[kPiece] = {};
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t k = first + r + j * step;
#if MEMKERN_AUTO
      _Pragma("omp simd")
#else
      HWY_UNROLL(8)
#endif
          for (std::int64_t u = 0; u < kPiece; ++u) sum[u] +=
          m.values[k + u] * m.x[m.columns[k + u]];
    }
    for (std::int64_t u = 0; u < kPiece; ++u) store<kAdd>(y + r + u, sum[u]);
  }
#endif
  lanes_one_by_one<T, I, kAdd>(m, y + r, rows - r, first + r, step, width);
}

// Chunks [begin, end) of C rows.
template <class T, class I, bool kAdd, bool kHint>
void sell(const void* p, Range range, int) {
  const SpmvArgs args = *static_cast<const SpmvArgs*>(p);
  const Matrix<T, I> m(args);
  T* HWY_RESTRICT y = static_cast<T*>(args.y);
  const bool prefetches = kHint || args.distance > 0;
  for (std::int64_t c = range.begin; c < range.end; ++c) {
    const std::int64_t first = m.starts[c];
    const std::int64_t end = m.starts[c + 1];
    if (prefetches) prefetch<T, I, kHint>(args, first, end);
    block<T, I, kAdd>(m, y + c * args.chunk, args.chunk, first, args.chunk,
                      (end - first) / args.chunk);
  }
  do_not_optimize(args.y);
}

// Rows [begin, end) of one chunk of all rows.
template <class T, class I, bool kAdd, bool>
void ell(const void* p, Range range, int) {
  const SpmvArgs args = *static_cast<const SpmvArgs*>(p);
  const Matrix<T, I> m(args);
  block<T, I, kAdd>(m, static_cast<T*>(args.y) + range.begin, range.end - range.begin, range.begin,
                    args.step, args.width);
  do_not_optimize(args.y);
}

#if !MEMKERN_SIMD && !MEMKERN_AUTO
// Columns [begin, end), into the worker's private y, because several columns add to a row.
template <class T, class I>
void csc(const void* p, Range range, int worker) {
  const SpmvArgs args = *static_cast<const SpmvArgs*>(p);
  const Matrix<T, I> m(args);
  T* y = static_cast<T*>(args.partial) + worker * args.partial_stride;
  for (std::int64_t c = range.begin; c < range.end; ++c) {
    const T x = m.x[c];
    for (std::int64_t k = m.starts[c]; k < m.starts[c + 1]; ++k) y[m.columns[k]] += m.values[k] * x;
  }
  do_not_optimize(args.partial);
}

// Adds up the workers' y, in their order, and resets them to zero for the next invocation.
template <class T, bool kAdd>
void csc_finish(const void* p, int workers) {
  const SpmvArgs& args = *static_cast<const SpmvArgs*>(p);
  T* y = static_cast<T*>(args.y);
  for (std::int64_t r = 0; r < args.rows; ++r) {
    T sum = 0;
    for (int w = 0; w < workers; ++w) {
      T& part = static_cast<T*>(args.partial)[w * args.partial_stride + r];
      sum += part;
      part = 0;
    }
    store<kAdd>(y + r, sum);
  }
}
// clang-format off
#define MEMKERN_CSC_TYPE(T, I, dtype, index)                                                   \
  {"spmv.csc", MEMKERN_VARIANT, dtype, index, csc<T, I>, csc_finish<T, false>, 0, 0, "write"}, \
  {"spmv.csc", MEMKERN_VARIANT, dtype, index, csc<T, I>, csc_finish<T, true>, 0, 0, "add"},
// clang-format on
#else
#define MEMKERN_CSC_TYPE(T, I, dtype, index)
#endif

// clang-format off
#define MEMKERN_FORMS(name, variant, unroll, dtype, index, write, add) \
  {name, variant, dtype, index, write, nullptr, unroll, 0, "write"},   \
  {name, variant, dtype, index, add, nullptr, unroll, 0, "add"},
#define MEMKERN_CRS(T, I, dtype, index, variant, hint, unroll, accumulators)                      \
  MEMKERN_FORMS("spmv.crs", variant, unroll, dtype, index,                                        \
                (crs<T, I, false, hint, accumulators>), (crs<T, I, true, hint, accumulators>))
#define MEMKERN_CHUNKED(name, body, T, I, dtype, index, variant, hint)                            \
  MEMKERN_FORMS(name, variant, 0, dtype, index, (body<T, I, false, hint>), (body<T, I, true, hint>))
#define MEMKERN_BY(T, I, dtype, index, u) MEMKERN_CRS(T, I, dtype, index, MEMKERN_VARIANT, false, u, u)
#if MEMKERN_AUTO
#define MEMKERN_UNROLLED(T, I, dtype, index)
#else
#define MEMKERN_UNROLLED(T, I, dtype, index)                                                      \
  MEMKERN_BY(T, I, dtype, index, 1) MEMKERN_BY(T, I, dtype, index, 2)                             \
  MEMKERN_BY(T, I, dtype, index, 3) MEMKERN_BY(T, I, dtype, index, 4)                             \
  MEMKERN_BY(T, I, dtype, index, 6) MEMKERN_BY(T, I, dtype, index, 8)
#endif
#if MEMKERN_SIMD
#define MEMKERN_HINTED(T, I, dtype, index)                                                        \
  MEMKERN_CRS(T, I, dtype, index, "nta", true, 0, kDefaultAccumulators)                                            \
  MEMKERN_CHUNKED("spmv.sell", sell, T, I, dtype, index, "nta", true)
#else
#define MEMKERN_HINTED(T, I, dtype, index)
#endif
#define MEMKERN_TYPE(T, I, dtype, index)                                                          \
  MEMKERN_CRS(T, I, dtype, index, MEMKERN_VARIANT, false, 0, kDefaultAccumulators)                                \
  MEMKERN_UNROLLED(T, I, dtype, index)                                                            \
  MEMKERN_CHUNKED("spmv.sell", sell, T, I, dtype, index, MEMKERN_VARIANT, false)                  \
  MEMKERN_CHUNKED("spmv.ell", ell, T, I, dtype, index, MEMKERN_VARIANT, false)                    \
  MEMKERN_HINTED(T, I, dtype, index)                                                              \
  MEMKERN_CSC_TYPE(T, I, dtype, index)

// Accumulators per row unless `unroll` is given.
constexpr int kDefaultAccumulators = MEMKERN_SIMD ? 1 : 2;

constexpr Entry kEntries[] = {
    MEMKERN_TYPE(double, std::int64_t, "float64", "int64")
    MEMKERN_TYPE(double, std::int32_t, "float64", "int32")
    MEMKERN_TYPE(float, std::int64_t, "float32", "int64")
    MEMKERN_TYPE(float, std::int32_t, "float32", "int32")
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "simd/targets.inc"
