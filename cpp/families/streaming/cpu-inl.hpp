// The loops of all streaming kernels: an operation on elements that are accessed one by one or as
// vectors, directly or by index. Included once per target.
#if defined(MEMKERN_STREAMING_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MEMKERN_STREAMING_INL
#undef MEMKERN_STREAMING_INL
#else
#define MEMKERN_STREAMING_INL
#endif

#include <algorithm>
#include <limits>
#include <type_traits>

#include "families/streaming/args.hpp"
#include "hwy/highway.h"
#include "simd/nontemporal.hpp"
#include "simd/stream-inl.hpp"
#include "simd/targets.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The simd technique stores whole vectors non-temporally, the scalar one single elements, where the
// target has no vectors.
#undef MEMKERN_NT_VARIANT  // may differ from target to target
#define MEMKERN_NT_VARIANT               \
  ((HWY_ARCH_ARM_A64 && MEMKERN_SIMD) || \
   (HWY_ARCH_X86_64 && (MEMKERN_SIMD || (MEMKERN_NONTEMPORAL && !MEMKERN_TARGET_HAS_VECTORS))))

// Vectors that a reduction sums in the type of the values, a thousand per accumulator. The sums of
// the blocks are added in double, to limit the rounding error of long sums.
inline constexpr std::int64_t kBlock = std::int64_t{1} << 13;
// Bytes of each stream between two bursts of prefetches.
inline constexpr std::int64_t kBurst_B = 512;
inline constexpr std::int64_t kLine_B = 64;
// Bytes that are zeroed before they are written, where that replaces reads.
inline constexpr std::uintptr_t kZeroed_B = 2048;

// Integers are unsigned in the kernels, so that sums and products are modulo their range; the
// arrays and `dtype` of the entries are signed.
template <class T>
inline constexpr const char* kDType = "";
template <>
inline constexpr const char* kDType<double> = "float64";
template <>
inline constexpr const char* kDType<float> = "float32";
template <>
inline constexpr const char* kDType<std::uint64_t> = "int64";
template <>
inline constexpr const char* kDType<std::uint32_t> = "int32";

template <class T>
MEMKERN_INLINE T converted(double value) {
  // The conversion of negative numbers to unsigned types is undefined.
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<std::int64_t>(value));
  return static_cast<T>(value);
}

// Accessors, by which an operation loads and stores: single elements, or vectors of them.
template <class T, bool kNonTemporal>
struct Single {
  using Element = T;
  using Value = T;
  const StreamingArgs& args;
  MEMKERN_INLINE static std::int64_t lanes() { return 1; }
  MEMKERN_INLINE T load(int k, std::int64_t i) const {
    return static_cast<const T*>(args.stream[k])[i];
  }
  MEMKERN_INLINE void store(int k, std::int64_t i, T value) const {
    T* to = static_cast<T*>(args.stream[k]) + i;
    if constexpr (kNonTemporal) {
      store_nontemporal(to, value);
    } else {
      *to = value;
    }
  }
  MEMKERN_INLINE static T set(double value) { return converted<T>(value); }
  MEMKERN_INLINE static T add(T x, T y) { return x + y; }
  MEMKERN_INLINE static T mul(T x, T y) { return x * y; }
  MEMKERN_INLINE static T mul_add(T x, T y, T z) { return x * y + z; }
  MEMKERN_INLINE static T larger(T x, T y) { return x > y ? x : y; }
  MEMKERN_INLINE static T sum(T x) { return x; }
  MEMKERN_INLINE static T largest(T x) { return x; }
};

#if MEMKERN_SIMD
template <class T, bool kNonTemporal>
struct Packed {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  using Value = hn::Vec<Tag>;
  const StreamingArgs& args;
  MEMKERN_INLINE static std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(Tag())); }
  MEMKERN_INLINE Value load(int k, std::int64_t i) const {
    return hn::LoadU(Tag(), static_cast<const T*>(args.stream[k]) + i);
  }
  MEMKERN_INLINE void store(int k, std::int64_t i, Value value) const {
    T* to = static_cast<T*>(args.stream[k]) + i;
    if constexpr (kNonTemporal) {
      stream(value, Tag(), to);
    } else {
      hn::StoreU(value, Tag(), to);
    }
  }
  MEMKERN_INLINE static Value set(double value) { return hn::Set(Tag(), converted<T>(value)); }
  MEMKERN_INLINE static Value add(Value x, Value y) { return hn::Add(x, y); }
  MEMKERN_INLINE static Value mul(Value x, Value y) { return hn::Mul(x, y); }
  MEMKERN_INLINE static Value mul_add(Value x, Value y, Value z) {
    if constexpr (std::is_integral_v<T>) {
      return add(mul(x, y), z);
    } else {
      return hn::MulAdd(x, y, z);
    }
  }
  MEMKERN_INLINE static Value larger(Value x, Value y) { return hn::Max(x, y); }
  MEMKERN_INLINE static T sum(Value x) { return hn::GetLane(hn::SumOfLanes(Tag(), x)); }
  MEMKERN_INLINE static T largest(Value x) { return hn::GetLane(hn::MaxOfLanes(Tag(), x)); }
};
#endif

#include "families/streaming/operations.inc"

// Applies the operation to elements [i, end) in steps of kUnroll values of A. Returns the first
// element that is not part of a whole step.
template <class Op, int kUnroll, class A>
MEMKERN_INLINE std::int64_t map_steps(const A& a, std::int64_t i, std::int64_t end, double alpha,
                                      double beta) {
  const std::int64_t lanes = A::lanes();
  const auto va = A::set(alpha);
  const auto vb = A::set(beta);
  for (; i + kUnroll * lanes <= end; i += kUnroll * lanes) {
    // Unrolled explicitly: a compiler that rolled the loop again would undo the option `unroll`.
    HWY_UNROLL(16)
    for (int u = 0; u < kUnroll; ++u) Op::step(a, i + u * lanes, va, vb);
  }
  return i;
}

// Elements [begin, end) in steps of kUnroll vectors, then by one vector, then by one element.
template <class Op, int kUnroll, class SingleA, class PackedA>
MEMKERN_INLINE void map_elements(const SingleA& single, [[maybe_unused]] const PackedA& packed,
                                 std::int64_t i, std::int64_t end, double alpha, double beta) {
#if MEMKERN_SIMD
  i = map_steps<Op, kUnroll>(packed, i, end, alpha, beta);
  if constexpr (kUnroll > 1) i = map_steps<Op, 1>(packed, i, end, alpha, beta);
  map_steps<Op, 1>(single, i, end, alpha, beta);
#else
  const auto va = single.set(alpha);
  const auto vb = single.set(beta);
  MEMKERN_LOOP
  for (std::int64_t k = i; k < end; ++k) Op::step(single, k, va, vb);
#endif
}

// With software prefetch, prefetches the lines `distance` elements ahead of a burst and returns the
// end of the burst; otherwise returns `end`. (`args` must not be the caller's local copy: an array
// that is indexed by a variable would keep the copy in memory instead of registers.)
template <class T>
MEMKERN_INLINE std::int64_t burst(const StreamingArgs& args, std::int64_t i, std::int64_t end) {
  if (args.distance == 0) return end;
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  for (int k = 0; k < args.streams; ++k) {
    const T* ahead = static_cast<const T*>(args.stream[k]) + i + args.distance;
    for (std::int64_t at = 0; at < kBurst_B / kSize; at += kLine_B / kSize) {
      __builtin_prefetch(ahead + at);
    }
  }
  return i + kBurst_B / kSize < end ? i + kBurst_B / kSize : end;
}

#if MEMKERN_SIMD && HWY_ARCH_ARM_A64
// Elements [begin, end) of outputs that the operation does not read, in ordinary stores to blocks
// that are zeroed before.
template <class T, class Op, int kUnroll>
MEMKERN_INLINE void map_zeroed(const StreamingArgs& args, std::int64_t begin, std::int64_t end,
                               std::uintptr_t block_B) {
  for (std::int64_t i = begin; i < end;) {
    T* first = static_cast<T*>(args.stream[0]) + i;
    const auto left_B = kZeroed_B - reinterpret_cast<std::uintptr_t>(first) % kZeroed_B;
    const auto most = static_cast<std::int64_t>((left_B + sizeof(T) - 1) / sizeof(T));
    const std::int64_t stop = i + most < end ? i + most : end;
    for (int k = 0; k < (std::is_same_v<Op, Init4> ? args.streams : 1); ++k) {
      T* to = static_cast<T*>(args.stream[k]);
      zero_blocks(to + i, to + stop, block_B);
    }
    map_elements<Op, kUnroll>(Single<T, false>{args}, Packed<T, false>{args}, i, stop, args.alpha,
                              args.beta);
    i = stop;
  }
}
#endif

template <class T, class Op, bool kNonTemporal, int kUnroll>
MEMKERN_INLINE void map_range(const StreamingArgs& args, std::int64_t begin, std::int64_t end) {
  const Single<T, kNonTemporal> single{args};
#if MEMKERN_SIMD
  const Packed<T, kNonTemporal> packed{args};
#if HWY_ARCH_ARM_A64
  if constexpr (kNonTemporal) {
    if (const auto block_B = zero_block_B(); block_B > 0 && block_B <= kZeroed_B) {
      return map_zeroed<T, Op, kUnroll>(args, begin, end, block_B);
    }
  }
#endif
  if constexpr (kNonTemporal) {
    // Non-temporal stores need aligned vectors.
    const auto vector_B = static_cast<std::uintptr_t>(packed.lanes()) * sizeof(T);
    const T* to = static_cast<const T*>(args.stream[0]);
    while (begin < end && reinterpret_cast<std::uintptr_t>(to + begin) % vector_B != 0) {
      begin = map_steps<Op, 1>(single, begin, begin + 1, args.alpha, args.beta);
    }
    // Outputs with different alignments can only be written element by element.
    for (int k = 1; k < (std::is_same_v<Op, Init4> ? args.streams : 1); ++k) {
      const T* other = static_cast<const T*>(args.stream[k]);
      if (reinterpret_cast<std::uintptr_t>(other + begin) % vector_B != 0) {
        begin = map_steps<Op, 1>(single, begin, end, args.alpha, args.beta);
      }
    }
  }
#else
  const auto& packed = single;
#endif
  map_elements<Op, kUnroll>(single, packed, begin, end, args.alpha, args.beta);
}

inline constexpr int kMapUnroll = 4;
inline constexpr int kReduceUnroll = 8;

template <class T, class Op, bool kNonTemporal, int kUnroll = kMapUnroll>
void map(const void* p, Range range, int) {
  // A local copy, which no pointer can alias, stays in registers.
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  for (std::int64_t i = range.begin; i < range.end;) {
    const std::int64_t stop = burst<T>(*static_cast<const StreamingArgs*>(p), i, range.end);
    map_range<T, Op, kNonTemporal, kUnroll>(args, i, stop);
    i = stop;
  }
  if constexpr (kNonTemporal) store_fence();
  do_not_optimize(args.stream[0]);
}

#define MEMKERN_SIXTEEN(X) \
  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

// One block with kUnroll accumulators, which hide the latency of additions.
template <class Op, int kUnroll, class A>
MEMKERN_INLINE typename A::Value reduce_steps(const A& a, std::int64_t& i, std::int64_t end,
                                              double alpha, double start) {
  using V = typename A::Value;
  const std::int64_t lanes = A::lanes();
  const V va = A::set(alpha);
  // Without loads, accumulators must start with different values, or the compiler merges them.
  constexpr bool kDistinct = std::is_same_v<Op, Peak>;
#define MEMKERN_DECLARE(u) [[maybe_unused]] V sum##u = A::set(kDistinct ? start + (u) : start);
#define MEMKERN_STEP(u) \
  if constexpr ((u) < kUnroll) sum##u = Op::step(a, i + (u)*lanes, va, sum##u);
#define MEMKERN_JOIN(u)                   \
  if constexpr (0 < (u) && (u) < kUnroll) \
    sum0 = Op::kSums ? A::add(sum0, sum##u) : A::larger(sum0, sum##u);
  MEMKERN_SIXTEEN(MEMKERN_DECLARE)
  for (; i + kUnroll * lanes <= end; i += kUnroll * lanes) {
    MEMKERN_SIXTEEN(MEMKERN_STEP)
  }
  for (; i + lanes <= end; i += lanes) sum0 = Op::step(a, i, va, sum0);
  MEMKERN_SIXTEEN(MEMKERN_JOIN)
  constexpr int kSurplus = kUnroll * (kUnroll - 1) / 2;
  if constexpr (kDistinct) sum0 = A::add(sum0, A::set(-static_cast<double>(kSurplus)));
#undef MEMKERN_JOIN
#undef MEMKERN_STEP
#undef MEMKERN_DECLARE
  return sum0;
}

template <class T, class Op, int kUnroll>
MEMKERN_INLINE double reduce_block(const StreamingArgs& args, std::int64_t i, std::int64_t end,
                                   double start) {
  const Single<T, false> single{args};
#if MEMKERN_SIMD
  using A = Packed<T, false>;
  const A packed{args};
  const auto vector = reduce_steps<Op, kUnroll>(packed, i, end, args.alpha, start);
  const T rest = reduce_steps<Op, 1>(single, i, end, args.alpha, start);
  if constexpr (Op::kSums) {
    return static_cast<double>(A::sum(vector)) + static_cast<double>(rest);
  } else {
    return static_cast<double>(single.larger(A::largest(vector), rest));
  }
#elif MEMKERN_AUTO
  const T alpha = single.set(args.alpha);
  T so_far = single.set(start);
  if constexpr (Op::kSums) {
    _Pragma("omp simd reduction(+ : so_far)") for (std::int64_t k = i; k < end; ++k) so_far =
        Op::step(single, k, alpha, so_far);
  } else {
    _Pragma("omp simd reduction(max : so_far)") for (std::int64_t k = i; k < end; ++k) so_far =
        Op::step(single, k, alpha, so_far);
  }
  return static_cast<double>(so_far);
#else
  return static_cast<double>(reduce_steps<Op, kUnroll>(single, i, end, args.alpha, start));
#endif
}

template <class T, class Op, int kUnroll = kReduceUnroll>
void reduce(const void* p, Range range, int worker) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  double& partial = args.partial[worker * StreamingArgs::kPartialStride];
#if MEMKERN_SIMD
  const std::int64_t block = kBlock * Packed<T, false>::lanes();
#else
  const std::int64_t block = kBlock;
#endif
  for (std::int64_t i = range.begin; i < range.end;) {
    const std::int64_t most = burst<T>(*static_cast<const StreamingArgs*>(p), i, range.end);
    const std::int64_t end = i + block < most ? i + block : most;
    if constexpr (Op::kSums) {
      partial += reduce_block<T, Op, kUnroll>(args, i, end, 0.0);
    } else {
      const double largest = reduce_block<T, Op, kUnroll>(args, i, end, partial);
      partial = largest > partial ? largest : partial;
    }
    i = end;
  }
  do_not_optimize(args.partial);
}

// Combines the partial results in the order of the workers, so that the result does not vary, and
// resets them for the next invocation.
template <class Op>
void finish(const void* p, int workers) {
  const StreamingArgs& args = *static_cast<const StreamingArgs*>(p);
  double all = kStart<Op>;
  for (int w = 0; w < workers; ++w) {
    double& partial = args.partial[w * StreamingArgs::kPartialStride];
    all = Op::kSums ? all + partial : partial > all ? partial : all;
    partial = kStart<Op>;
  }
  *args.result = all;
}

// Rows of a table of entries: a map, a map that can use non-temporal stores, a reduction. Each has
// the two types of values that are defined where the rows are included; see integers.inc.
#undef MEMKERN_WIDE
#undef MEMKERN_NARROW
#undef MEMKERN_MAP
#undef MEMKERN_STORE
#undef MEMKERN_REDUCE
#define MEMKERN_WIDE double
#define MEMKERN_NARROW float
// clang-format off
#define MEMKERN_MAP_OF(T, name, Op) \
  {name, MEMKERN_VARIANT, kDType<T>, "", map<T, Op, false>, nullptr},
#define MEMKERN_MAP(name, Op, arrays, flops, scalars) \
  MEMKERN_MAP_OF(MEMKERN_WIDE, name, Op) MEMKERN_MAP_OF(MEMKERN_NARROW, name, Op)
#if MEMKERN_NT_VARIANT
#define MEMKERN_NT_OF(T, name, Op) {name, "nt", kDType<T>, "", map<T, Op, true>, nullptr},
#define MEMKERN_STORE(name, Op, arrays, flops, scalars) \
  MEMKERN_MAP(name, Op, arrays, flops, scalars)         \
  MEMKERN_NT_OF(MEMKERN_WIDE, name, Op) MEMKERN_NT_OF(MEMKERN_NARROW, name, Op)
#else
#define MEMKERN_STORE MEMKERN_MAP
#endif
#define MEMKERN_REDUCE_OF(T, name, Op) \
  {name, MEMKERN_VARIANT, kDType<T>, "", reduce<T, Op>, finish<Op>},
#define MEMKERN_REDUCE(name, Op, arrays, flops, scalars) \
  MEMKERN_REDUCE_OF(double, name, Op) MEMKERN_REDUCE_OF(float, name, Op)
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
