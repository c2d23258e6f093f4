// The hopping term of the domain-wall operator: for every site and direction, a spinor is projected
// to a half-spinor, which is multiplied by a link and reconstructed (Alappat et al. 2021; basis and
// signs are those of Grid, see python/memkern/inputs/lattice.py).
//
// A vector holds the same component of several sites, or of several s, which share their links. The
// parts of complex numbers are interleaved in one vector (RIRI) or in two vectors (RRII).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/dw/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "families/dw/args.hpp"
#include "simd/nontemporal.hpp"
#include "simd/stream-inl.hpp"
#include "simd/targets.hpp"

// Compilers cannot vectorise the scalar loops, so that there is no variant "auto".
#if MEMKERN_TARGET_EXISTS && !MEMKERN_AUTO
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kLine_B = 64;

#undef MEMKERN_OUT_OF_LINE  // the variants simd and nt share one function
#if MEMKERN_SIMD
#define MEMKERN_OUT_OF_LINE __attribute__((noinline))
#else
#define MEMKERN_OUT_OF_LINE MEMKERN_INLINE
#endif

// Loads, stores and arithmetic on `kReals` real numbers at a time.
#if MEMKERN_SIMD
template <class T, int kWidth>
struct Packed {
  using Real = T;
  using D = hn::FixedTag<T, kWidth>;
  using V = hn::Vec<D>;
  static constexpr int kReals = kWidth;
  MEMKERN_INLINE static V load(const T* p) { return hn::Load(D(), p); }
  MEMKERN_INLINE static V set(T x) { return hn::Set(D(), x); }
  MEMKERN_INLINE static V zero() { return hn::Zero(D()); }
  MEMKERN_INLINE static void store(T* p, V x) { hn::Store(x, D(), p); }
  MEMKERN_INLINE static void store_nontemporal(T* p, V x) { stream(x, D(), p); }
  MEMKERN_INLINE static V add(V x, V y) { return hn::Add(x, y); }
  MEMKERN_INLINE static V sub(V x, V y) { return hn::Sub(x, y); }
  MEMKERN_INLINE static V mul(V x, V y) { return hn::Mul(x, y); }
  MEMKERN_INLINE static V mul_add(V x, V y, V z) { return hn::MulAdd(x, y, z); }
  MEMKERN_INLINE static V mul_sub_from(V x, V y, V z) { return hn::NegMulAdd(x, y, z); }
  // Of interleaved complex numbers: real parts duplicated, imaginary parts duplicated, both
  // exchanged.
  MEMKERN_INLINE static V real_parts(V x) { return hn::DupEven(x); }
  MEMKERN_INLINE static V imaginary_parts(V x) { return hn::DupOdd(x); }
  MEMKERN_INLINE static V exchanged(V x) { return hn::Reverse2(D(), x); }
  MEMKERN_INLINE static V minus_plus() {
    return hn::OddEven(hn::Set(D(), T{1}), hn::Set(D(), T{-1}));
  }
#if MEMKERN_TARGET_IS_SVE
  // x + i y, x - i y and x + u y by the instructions for such complex numbers.
  MEMKERN_INLINE static V plus_i(V x, V y) { return svcadd_x(svptrue_b8(), x, y, 90); }
  MEMKERN_INLINE static V minus_i(V x, V y) { return svcadd_x(svptrue_b8(), x, y, 270); }
  MEMKERN_INLINE static V complex_mul_add(V u, V y, V x) {
    const auto all = svptrue_b8();
    return svcmla_x(all, svcmla_x(all, x, u, y, 0), u, y, 90);
  }
  MEMKERN_INLINE static V set_complex(const T* u) { return hn::OddEven(set(u[1]), set(u[0])); }
#endif
  MEMKERN_INLINE static V permuted(V x, const void* lanes, int direction) {
    using I = hn::TFromD<hn::RebindToSigned<D>>;
    const I* row = static_cast<const I*>(lanes) + direction * kWidth;
    return hn::TableLookupLanes(x, hn::SetTableIndices(D(), row));
  }
};
#else
template <class T>
struct Single {
  using Real = T;
  using V = T;
  static constexpr int kReals = 1;
  MEMKERN_INLINE static V load(const T* p) { return *p; }
  MEMKERN_INLINE static V set(T x) { return x; }
  MEMKERN_INLINE static V zero() { return 0; }
  MEMKERN_INLINE static void store(T* p, V x) { *p = x; }
  MEMKERN_INLINE static void store_nontemporal(T* p, V x) { *p = x; }
  MEMKERN_INLINE static V add(V x, V y) { return x + y; }
  MEMKERN_INLINE static V sub(V x, V y) { return x - y; }
  MEMKERN_INLINE static V mul(V x, V y) { return x * y; }
  MEMKERN_INLINE static V mul_add(V x, V y, V z) { return x * y + z; }
  MEMKERN_INLINE static V mul_sub_from(V x, V y, V z) { return z - x * y; }
  MEMKERN_INLINE static V permuted(V x, const void*, int) { return x; }
};
#endif

// 1 +- gamma_mu adds to each upper spin h (0 or 1) its partner, a lower spin, times a power of i.
// The product of link and projected spin is added to spin h and, times the conjugate power, to the
// partner.
constexpr int partner(int mu, int h) { return mu < 2 ? 3 - h : 2 + h; }
constexpr int power(int direction, int h) {
  constexpr int kForward[4][2] = {{1, 1}, {2, 0}, {1, 3}, {0, 0}};
  return (kForward[direction % 4][h] + (direction < 4 ? 0 : 2)) % 4;
}
constexpr int conjugate(int power_of_i) { return (4 - power_of_i) % 4; }

// Inputs of one direction, for one vector of s.
template <class T>
struct Reach {
  const T* psi;
  const T* links;
  const void* lanes;  // permutations of lanes; null if there is none
  const T* ahead;     // spinor to prefetch; null without prefetch
  bool into_l1;
};

// Prefetches one of `kParts` parts of a later spinor. Prefetches are spread over the computation,
// because all at once would exceed the possible loads in flight.
template <int kParts, std::int64_t kElements, class T>
MEMKERN_INLINE void prefetch(const Reach<T>& at, int part) {
  if (at.ahead == nullptr) return;
  constexpr auto kBytes = static_cast<std::int64_t>(kElements * sizeof(T) / kParts);
  const char* from = reinterpret_cast<const char*>(at.ahead) + part * kBytes;
  if (at.into_l1) {
    for (std::int64_t b = 0; b < kBytes; b += kLine_B) __builtin_prefetch(from + b, 0, 3);
  } else {
    for (std::int64_t b = 0; b < kBytes; b += kLine_B) __builtin_prefetch(from + b, 0, 2);
  }
}

// x += i^kPower y, with real and imaginary parts in two vectors.
template <class A, int kPower, class V = typename A::V>
MEMKERN_INLINE void add_turned(V& xr, V& xi, V yr, V yi) {
  if constexpr (kPower == 0) {
    xr = A::add(xr, yr);
    xi = A::add(xi, yi);
  } else if constexpr (kPower == 1) {
    xr = A::sub(xr, yi);
    xi = A::add(xi, yr);
  } else if constexpr (kPower == 2) {
    xr = A::sub(xr, yr);
    xi = A::sub(xi, yi);
  } else {
    xr = A::add(xr, yi);
    xi = A::sub(xi, yr);
  }
}

// Real number k of a site's links, for all lanes.
template <class A, bool kShared, class T = typename A::Real>
MEMKERN_INLINE typename A::V link(const T* links, int k) {
  if constexpr (kShared) {
    return A::set(links[k]);
  } else {
    return A::load(links + k * A::kReals);
  }
}

#define MEMKERN_COLOURS(x) x##r0, x##i0, x##r1, x##i1, x##r2, x##i2
#define MEMKERN_REFERENCES(x) V &x##r0, V &x##i0, V &x##r1, V &x##i1, V &x##r2, V &x##i2
#define MEMKERN_ZEROS(x)                                                           \
  auto x##r0 = A::zero(), x##i0 = A::zero(), x##r1 = A::zero(), x##i1 = A::zero(), \
       x##r2 = A::zero(), x##i2 = A::zero()
#define MEMKERN_ALL_DIRECTIONS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

// Adds the contribution of one direction and of spin h to spin h (upper) and its partner (lower).
template <class A, bool kShared, int kDirection, int kH, class V = typename A::V>
MEMKERN_INLINE void add_split(const Reach<typename A::Real>& at, MEMKERN_REFERENCES(upper),
                              MEMKERN_REFERENCES(lower)) {
  constexpr int kN = A::kReals;
  constexpr int kTurn = power(kDirection, kH);
  prefetch<2, DwArgs::kSpinor * kN>(at, kH);
  const auto* x = at.psi + 6 * kN * kH;
  const auto* y = at.psi + 6 * kN * partner(kDirection % 4, kH);
#define MEMKERN_PROJECT(j)                                                                \
  V chi##r##j = A::load(x + (2 * (j)) * kN), chi##i##j = A::load(x + (2 * (j) + 1) * kN); \
  add_turned<A, kTurn>(chi##r##j, chi##i##j, A::load(y + (2 * (j)) * kN),                 \
                       A::load(y + (2 * (j) + 1) * kN));
  MEMKERN_PROJECT(0)
  MEMKERN_PROJECT(1)
  MEMKERN_PROJECT(2)
#undef MEMKERN_PROJECT
  if constexpr (!kShared && kN > 1) {
    if (at.lanes != nullptr) {
#define MEMKERN_PERMUTE(j)                                  \
  chi##r##j = A::permuted(chi##r##j, at.lanes, kDirection); \
  chi##i##j = A::permuted(chi##i##j, at.lanes, kDirection);
      MEMKERN_PERMUTE(0) MEMKERN_PERMUTE(1) MEMKERN_PERMUTE(2)
#undef MEMKERN_PERMUTE
    }
  }
  const auto* u = at.links + 18 * kDirection * (kShared ? 1 : kN);
#define MEMKERN_ROW(i)                                                            \
  {                                                                               \
    V ur = link<A, kShared>(u, 6 * (i)), ui = link<A, kShared>(u, 6 * (i) + 1);   \
    V r = A::mul(ur, chir0), s = A::mul(ur, chii0);                               \
    r = A::mul_sub_from(ui, chii0, r), s = A::mul_add(ui, chir0, s);              \
    ur = link<A, kShared>(u, 6 * (i) + 2), ui = link<A, kShared>(u, 6 * (i) + 3); \
    r = A::mul_add(ur, chir1, r), s = A::mul_add(ur, chii1, s);                   \
    r = A::mul_sub_from(ui, chii1, r), s = A::mul_add(ui, chir1, s);              \
    ur = link<A, kShared>(u, 6 * (i) + 4), ui = link<A, kShared>(u, 6 * (i) + 5); \
    r = A::mul_add(ur, chir2, r), s = A::mul_add(ur, chii2, s);                   \
    r = A::mul_sub_from(ui, chii2, r), s = A::mul_add(ui, chir2, s);              \
    upperr##i = A::add(upperr##i, r), upperi##i = A::add(upperi##i, s);           \
    add_turned<A, conjugate(kTurn)>(lowerr##i, loweri##i, r, s);                  \
  }
  MEMKERN_ROW(0) MEMKERN_ROW(1) MEMKERN_ROW(2)
#undef MEMKERN_ROW
}

// One site and vector of s. The upper spins are computed one after the other, because the
// accumulators of both would not fit into registers.
template <class A, bool kShared, class T = typename A::Real>
MEMKERN_INLINE void split_site(const Reach<T>* at, T* result, bool nontemporal) {
  constexpr int kN = A::kReals;
  MEMKERN_ZEROS(two);
  MEMKERN_ZEROS(three);
#define MEMKERN_SIX(store, to, x)                             \
  A::store(to, x##r0), A::store(to + kN, x##i0);              \
  A::store(to + 2 * kN, x##r1), A::store(to + 3 * kN, x##i1); \
  A::store(to + 4 * kN, x##r2), A::store(to + 5 * kN, x##i2);
#define MEMKERN_STORE(spin, x)                                  \
  if (nontemporal) {                                            \
    MEMKERN_SIX(store_nontemporal, (result + 6 * (spin)*kN), x) \
  } else {                                                      \
    MEMKERN_SIX(store, (result + 6 * (spin)*kN), x)             \
  }
#define MEMKERN_ADD(k)                                                                   \
  if constexpr (partner((k) % 4, kH) == 2) {                                             \
    add_split<A, kShared, k, kH>(at[k], MEMKERN_COLOURS(upper), MEMKERN_COLOURS(two));   \
  } else {                                                                               \
    add_split<A, kShared, k, kH>(at[k], MEMKERN_COLOURS(upper), MEMKERN_COLOURS(three)); \
  }
  {
    constexpr int kH = 0;
    MEMKERN_ZEROS(upper);
    MEMKERN_ALL_DIRECTIONS(MEMKERN_ADD)
    MEMKERN_STORE(0, upper)
  }
  {
    constexpr int kH = 1;
    MEMKERN_ZEROS(upper);
    MEMKERN_ALL_DIRECTIONS(MEMKERN_ADD)
    MEMKERN_STORE(1, upper)
  }
  MEMKERN_STORE(2, two)
  MEMKERN_STORE(3, three)
#undef MEMKERN_ADD
#undef MEMKERN_STORE
#undef MEMKERN_SIX
}

#if MEMKERN_SIMD
// x + i^kPower y, with interleaved real and imaginary parts.
template <class A, int kPower, class V = typename A::V>
MEMKERN_INLINE V plus_turned(V x, V y) {
  if constexpr (kPower == 0) return A::add(x, y);
  if constexpr (kPower == 2) return A::sub(x, y);
#if MEMKERN_TARGET_IS_SVE
  if constexpr (kPower == 1) return A::plus_i(x, y);
  if constexpr (kPower == 3) return A::minus_i(x, y);
#else
  if constexpr (kPower == 1) return A::mul_add(A::exchanged(y), A::minus_plus(), x);
  if constexpr (kPower == 3) return A::mul_sub_from(A::exchanged(y), A::minus_plus(), x);
#endif
}

// Adds the contribution of one direction to spins 0 (a) and 1 (b) and to their partners (c, d).
template <class A, bool kShared, int kDirection, class V = typename A::V>
MEMKERN_INLINE void add_mixed(const Reach<typename A::Real>& at, V& a0, V& a1, V& a2, V& b0, V& b1,
                              V& b2, V& c0, V& c1, V& c2, V& d0, V& d1, V& d2) {
  constexpr int kN = A::kReals;
  constexpr int kTurn0 = power(kDirection, 0);
  constexpr int kTurn1 = power(kDirection, 1);
  prefetch<1, DwArgs::kSpinor / 2 * kN>(at, 0);
#define MEMKERN_PROJECT(h, j)                                          \
  V chi##h##j =                                                        \
      plus_turned<A, kTurn##h>(A::load(at.psi + (3 * (h) + (j)) * kN), \
                               A::load(at.psi + (3 * partner(kDirection % 4, h) + (j)) * kN));
#define MEMKERN_SIX(X) X(0, 0) X(0, 1) X(0, 2) X(1, 0) X(1, 1) X(1, 2)
  MEMKERN_SIX(MEMKERN_PROJECT)
  if constexpr (!kShared) {
    if (at.lanes != nullptr) {
#define MEMKERN_PERMUTE(h, j) chi##h##j = A::permuted(chi##h##j, at.lanes, kDirection);
      MEMKERN_SIX(MEMKERN_PERMUTE)
    }
  }
  const auto* u = at.links + 18 * kDirection * (kShared ? 1 : kN / 2);
// x0 and x1: row i of the link times the two spins.
#if MEMKERN_TARGET_IS_SVE
#define MEMKERN_COLUMN(i, j)                          \
  {                                                   \
    V link;                                           \
    if constexpr (kShared) {                          \
      link = A::set_complex(u + 2 * (3 * (i) + (j))); \
    } else {                                          \
      link = A::load(u + (3 * (i) + (j)) * kN);       \
    }                                                 \
    x0 = A::complex_mul_add(link, chi0##j, x0);       \
    x1 = A::complex_mul_add(link, chi1##j, x1);       \
  }
#define MEMKERN_PRODUCT(i)          \
  V x0 = A::zero(), x1 = A::zero(); \
  MEMKERN_COLUMN(i, 0)              \
  MEMKERN_COLUMN(i, 1)              \
  MEMKERN_COLUMN(i, 2)
#else
#define MEMKERN_EXCHANGE(h, j) const V odd##h##j = A::exchanged(chi##h##j);
  MEMKERN_SIX(MEMKERN_EXCHANGE)
#define MEMKERN_PARTS(k)                                     \
  if constexpr (kShared) {                                   \
    re = A::set(u[2 * (k)]), im = A::set(u[2 * (k) + 1]);    \
  } else {                                                   \
    const V both = A::load(u + (k)*kN);                      \
    re = A::real_parts(both), im = A::imaginary_parts(both); \
  }
#define MEMKERN_PRODUCT(i)                                        \
  V re, im;                                                       \
  MEMKERN_PARTS(3 * (i))                                          \
  V x0 = A::mul(re, chi00), x1 = A::mul(re, chi10);               \
  V y0 = A::mul(im, odd00), y1 = A::mul(im, odd10);               \
  MEMKERN_PARTS(3 * (i) + 1)                                      \
  x0 = A::mul_add(re, chi01, x0), x1 = A::mul_add(re, chi11, x1); \
  y0 = A::mul_add(im, odd01, y0), y1 = A::mul_add(im, odd11, y1); \
  MEMKERN_PARTS(3 * (i) + 2)                                      \
  x0 = A::mul_add(re, chi02, x0), x1 = A::mul_add(re, chi12, x1); \
  y0 = A::mul_add(im, odd02, y0), y1 = A::mul_add(im, odd12, y1); \
  x0 = A::mul_add(y0, A::minus_plus(), x0);                       \
  x1 = A::mul_add(y1, A::minus_plus(), x1);
#endif
#define MEMKERN_ROW(i)                                  \
  {                                                     \
    MEMKERN_PRODUCT(i)                                  \
    a##i = A::add(a##i, x0), b##i = A::add(b##i, x1);   \
    c##i = plus_turned<A, conjugate(kTurn0)>(c##i, x0); \
    d##i = plus_turned<A, conjugate(kTurn1)>(d##i, x1); \
  }
  MEMKERN_ROW(0) MEMKERN_ROW(1) MEMKERN_ROW(2)
#undef MEMKERN_ROW
#undef MEMKERN_PRODUCT
#undef MEMKERN_COLUMN
#undef MEMKERN_PARTS
#undef MEMKERN_EXCHANGE
#undef MEMKERN_PERMUTE
#undef MEMKERN_SIX
#undef MEMKERN_PROJECT
}

template <class A, bool kShared, class T = typename A::Real>
MEMKERN_INLINE void mixed_site(const Reach<T>* at, T* result, bool nontemporal) {
  constexpr int kN = A::kReals;
  auto s00 = A::zero(), s01 = A::zero(), s02 = A::zero();
  auto s10 = A::zero(), s11 = A::zero(), s12 = A::zero();
  auto s20 = A::zero(), s21 = A::zero(), s22 = A::zero();
  auto s30 = A::zero(), s31 = A::zero(), s32 = A::zero();
#define MEMKERN_ADD(k)                                                                           \
  if constexpr (partner((k) % 4, 0) == 2) {                                                      \
    add_mixed<A, kShared, k>(at[k], s00, s01, s02, s10, s11, s12, s20, s21, s22, s30, s31, s32); \
  } else {                                                                                       \
    add_mixed<A, kShared, k>(at[k], s00, s01, s02, s10, s11, s12, s30, s31, s32, s20, s21, s22); \
  }
  MEMKERN_ALL_DIRECTIONS(MEMKERN_ADD)
#undef MEMKERN_ADD
#define MEMKERN_SPIN(store, spin, x, y, z)                                          \
  A::store(result + 3 * (spin)*kN, x), A::store(result + (3 * (spin) + 1) * kN, y), \
      A::store(result + (3 * (spin) + 2) * kN, z);
#define MEMKERN_STORE(store)            \
  MEMKERN_SPIN(store, 0, s00, s01, s02) \
  MEMKERN_SPIN(store, 1, s10, s11, s12) \
  MEMKERN_SPIN(store, 2, s20, s21, s22) MEMKERN_SPIN(store, 3, s30, s31, s32)
  if (nontemporal) {
    MEMKERN_STORE(store_nontemporal)
  } else {
    MEMKERN_STORE(store)
  }
#undef MEMKERN_STORE
#undef MEMKERN_SPIN
}
#endif

// Visits sites [begin, end) of `order`. The kind of store is chosen at run time: a template
// parameter would double the compile time.
template <class A, bool kSplit, bool kShared, class T = typename A::Real>
MEMKERN_OUT_OF_LINE void update(const DwArgs& args, Range range, bool nontemporal) {
  const T* psi = static_cast<const T*>(args.psi);
  const T* links = static_cast<const T*>(args.links);
  // Elements of a spinor, and of the links of a site, for all lanes.
  constexpr std::int64_t kSpinor = DwArgs::kSpinor / (kSplit ? 1 : 2) * A::kReals;
  constexpr std::int64_t kLinks = DwArgs::kLinks * (kShared  ? 1
                                                    : kSplit ? A::kReals
                                                             : A::kReals / 2);
  const std::int64_t row = args.inner * kSpinor;
  const auto* order = static_cast<const std::int32_t*>(args.order);
  const auto* neighbours = static_cast<const std::int32_t*>(args.neighbours);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const std::int32_t* around = neighbours + i * DwArgs::kDirections;
    const std::int64_t later = i + args.distance;
    const bool prefetches = args.distance > 0 && later < args.sites;
    if (prefetches) {
      const T* from = links + order[later] * kLinks;
      for (std::int64_t k = 0; k < kLinks; k += kLine_B / std::int64_t{sizeof(T)}) {
        __builtin_prefetch(from + k, 0, 2);
      }
    }
    T* result = static_cast<T*>(args.result) + order[i] * row;
    Reach<T> at[DwArgs::kDirections];
    for (int k = 0; k < DwArgs::kDirections; ++k) {
      at[k] = {psi + (around[k] >> 1) * row, links + order[i] * kLinks,
               (around[k] & 1) != 0 ? args.permutations : nullptr, nullptr, args.into_l1};
      if (prefetches && ((args.prefetched >> k) & 1) != 0) {
        at[k].ahead = psi + (neighbours[later * DwArgs::kDirections + k] >> 1) * row;
      }
    }
    for (std::int64_t s = 0; s < args.inner; ++s) {
      if constexpr (kSplit) {
        split_site<A, kShared>(at, result, nontemporal);
      } else {
        mixed_site<A, kShared>(at, result, nontemporal);
      }
      result += kSpinor;
      for (Reach<T>& reach : at) {
        reach.psi += kSpinor;
        if (reach.ahead != nullptr) reach.ahead += kSpinor;
      }
    }
  }
}

template <class A, bool kSplit, bool kShared, bool kNonTemporal>
void hop(const void* p, Range range, int) {
  const DwArgs args = *static_cast<const DwArgs*>(p);
  update<A, kSplit, kShared>(args, range, kNonTemporal);
  if constexpr (kNonTemporal) store_fence();
  do_not_optimize(args.result);
}

// clang-format off
#if MEMKERN_SIMD
#define MEMKERN_HOP(variant, T, dtype, reals, split, shared, nontemporal, template_variant) \
  {"dw.hop", variant, dtype, "", hop<Packed<T, reals>, split, shared, nontemporal>,         \
   nullptr, 0, 2, template_variant, (reals) * sizeof(T)},
#if HWY_ARCH_X86_64
#define MEMKERN_STORES(T, dtype, reals, split, shared, template_variant)               \
  MEMKERN_HOP("simd", T, dtype, reals, split, shared, false, template_variant)         \
  MEMKERN_HOP("nt", T, dtype, reals, split, shared, true, template_variant)
#else
#define MEMKERN_STORES(T, dtype, reals, split, shared, template_variant) \
  MEMKERN_HOP("simd", T, dtype, reals, split, shared, false, template_variant)
#endif
#define MEMKERN_WIDTH(bits)                                                                       \
  MEMKERN_STORES(double, "float64", bits / 64, true, false, "RRII/sites/" #bits)                  \
  MEMKERN_STORES(double, "float64", bits / 64, true, true, "RRII/s/" #bits)                       \
  MEMKERN_STORES(double, "float64", bits / 64, false, false, "RIRI/sites/" #bits)                 \
  MEMKERN_STORES(double, "float64", bits / 64, false, true, "RIRI/s/" #bits)                      \
  MEMKERN_STORES(float, "float32", bits / 32, true, false, "RRII/sites/" #bits)                   \
  MEMKERN_STORES(float, "float32", bits / 32, true, true, "RRII/s/" #bits)                        \
  MEMKERN_STORES(float, "float32", bits / 32, false, false, "RIRI/sites/" #bits)                  \
  MEMKERN_STORES(float, "float32", bits / 32, false, true, "RIRI/s/" #bits)
constexpr Entry kEntries[] = {
    MEMKERN_WIDTH(128)
#if HWY_MAX_BYTES >= 32
    MEMKERN_WIDTH(256)
#endif
#if HWY_MAX_BYTES >= 64
    MEMKERN_WIDTH(512)
#endif
};
#else
constexpr Entry kEntries[] = {
    {"dw.hop", MEMKERN_VARIANT, "float64", "", hop<Single<double>, true, true, false>, nullptr, 0, 2, "lexicographic"},
    {"dw.hop", MEMKERN_VARIANT, "float32", "", hop<Single<float>, true, true, false>, nullptr, 0, 2, "lexicographic"},
};
#endif
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if !MEMKERN_AUTO
#include "simd/targets.inc"
#endif
