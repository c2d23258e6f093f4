// Regular streaming: STREAM (McCalpin), the finite-element streaming tests BS1 to BS5 (Chalmers
// and Warburton 2020) and the loop kernels of the ECM studies (Alappat et al. 2021). A kernel is
// one operation on the elements of up to four arrays; x0 to x3 below are these arrays, in the
// order in which the spec declares them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/streaming.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/kernel.hpp"
#include "core/nontemporal.hpp"
#include "kernels/streaming.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors are stored past the caches whole; where there are none, element by element.
#define MEMKERN_STREAMS_PAST_CACHES \
  (HWY_ARCH_X86_64 && (MEMKERN_SIMD || (MEMKERN_NONTEMPORAL && HWY_TARGET == HWY_STATIC_TARGET)))

// Values that a reduction sums in their own type, a thousand to an accumulator; the blocks' sums
// are added in double, so that no precision loses what many elements add up to.
constexpr std::int64_t kBlock = std::int64_t{1} << 13;

// How an operation reaches its elements: one at a time, or a vector of them.
template <class T, bool kNonTemporal>
struct Single {
  using Value = T;
  const StreamingArgs& args;
  MEMKERN_INLINE static std::int64_t lanes() { return 1; }
  MEMKERN_INLINE T load(int k, std::int64_t i) const {
    return static_cast<const T*>(args.stream[k])[i];
  }
  MEMKERN_INLINE void store(int k, std::int64_t i, T value) const {
    T* to = static_cast<T*>(args.stream[k]) + i;
    if constexpr (kNonTemporal) {
      store_past_caches(to, value);
    } else {
      *to = value;
    }
  }
  MEMKERN_INLINE static T set(double value) { return static_cast<T>(value); }
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
      hn::Stream(value, Tag(), to);
    } else {
      hn::StoreU(value, Tag(), to);
    }
  }
  MEMKERN_INLINE static Value set(double value) { return hn::Set(Tag(), static_cast<T>(value)); }
  MEMKERN_INLINE static Value add(Value x, Value y) { return hn::Add(x, y); }
  MEMKERN_INLINE static Value mul(Value x, Value y) { return hn::Mul(x, y); }
  MEMKERN_INLINE static Value mul_add(Value x, Value y, Value z) { return hn::MulAdd(x, y, z); }
  MEMKERN_INLINE static Value larger(Value x, Value y) { return hn::Max(x, y); }
  MEMKERN_INLINE static T sum(Value x) { return hn::GetLane(hn::SumOfLanes(Tag(), x)); }
  MEMKERN_INLINE static T largest(Value x) { return hn::GetLane(hn::MaxOfLanes(Tag(), x)); }
};
#endif

// The operations. `step` treats the elements at i; a reduction also returns what it has reduced
// so far. alpha and beta come as values of the accessor, made once.
struct Init {  // x0 = alpha
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V alpha, V) {
    a.store(0, i, alpha);
  }
};
struct Copy {  // x0 = x1
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V, V) {
    a.store(0, i, a.load(1, i));
  }
};
struct Scale {  // x0 = alpha x1
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V alpha, V) {
    a.store(0, i, A::mul(alpha, a.load(1, i)));
  }
};
struct Add {  // x0 = x1 + x2
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V, V) {
    a.store(0, i, A::add(a.load(1, i), a.load(2, i)));
  }
};
struct Triad {  // x0 = x1 + alpha x2
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V alpha, V) {
    a.store(0, i, A::mul_add(alpha, a.load(2, i), a.load(1, i)));
  }
};
struct Schoenauer {  // x0 = x1 + x2 x3
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V, V) {
    a.store(0, i, A::mul_add(a.load(2, i), a.load(3, i), a.load(1, i)));
  }
};
struct Update {  // x0 = alpha x0
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V alpha, V) {
    a.store(0, i, A::mul(alpha, a.load(0, i)));
  }
};
struct Daxpy {  // x0 += alpha x1
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V alpha, V) {
    a.store(0, i, A::mul_add(alpha, a.load(1, i), a.load(0, i)));
  }
};
struct Axpby {  // x0 = alpha x1 + beta x0
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V alpha, V beta) {
    a.store(0, i, A::mul_add(alpha, a.load(1, i), A::mul(beta, a.load(0, i))));
  }
};
struct Nstream {  // x0 += x1 + alpha x2
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static void step(const A& a, std::int64_t i, V alpha, V) {
    a.store(0, i, A::add(a.load(0, i), A::mul_add(alpha, a.load(2, i), a.load(1, i))));
  }
};

struct Load {  // the largest of x0: a reduction that costs no more than its loads
  static constexpr bool kSums = false;
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static V step(const A& a, std::int64_t i, V, V so_far) {
    return A::larger(a.load(0, i), so_far);
  }
};
struct Sum {
  static constexpr bool kSums = true;
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static V step(const A& a, std::int64_t i, V, V so_far) {
    return A::add(so_far, a.load(0, i));
  }
};
struct Norm {  // x0 . x0
  static constexpr bool kSums = true;
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static V step(const A& a, std::int64_t i, V, V so_far) {
    const V x = a.load(0, i);
    return A::mul_add(x, x, so_far);
  }
};
struct Dot {  // x0 . x1
  static constexpr bool kSums = true;
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static V step(const A& a, std::int64_t i, V, V so_far) {
    return A::mul_add(a.load(0, i), a.load(1, i), so_far);
  }
};
struct CgUpdate {  // x0 += alpha x2, x1 -= alpha x3, x1 . x1
  static constexpr bool kSums = true;
  template <class A, class V = typename A::Value>
  MEMKERN_INLINE static V step(const A& a, std::int64_t i, V alpha, V so_far) {
    a.store(0, i, A::mul_add(alpha, a.load(2, i), a.load(0, i)));
    const V r = A::add(a.load(1, i), A::mul(A::set(-1.0), A::mul(alpha, a.load(3, i))));
    a.store(1, i, r);
    return A::mul_add(r, r, so_far);
  }
};

// Elements [i, end) in steps of kUnroll of A's values; returns where the next whole step would
// begin.
template <class Op, int kUnroll, class A>
MEMKERN_INLINE std::int64_t map_steps(const A& a, std::int64_t i, std::int64_t end, double alpha,
                                      double beta) {
  const std::int64_t lanes = A::lanes();
  const auto va = A::set(alpha);
  const auto vb = A::set(beta);
  for (; i + kUnroll * lanes <= end; i += kUnroll * lanes) {
    for (int u = 0; u < kUnroll; ++u) Op::step(a, i + u * lanes, va, vb);
  }
  return i;
}

template <class T, class Op, bool kNonTemporal>
void map(const void* p, Range range, int) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  std::int64_t i = range.begin;
  const Single<T, kNonTemporal> single{args};
#if MEMKERN_SIMD
  const Packed<T, kNonTemporal> packed{args};
  if constexpr (kNonTemporal) {
    // Stores past the caches want aligned vectors.
    const auto vector_B = static_cast<std::uintptr_t>(packed.lanes()) * sizeof(T);
    const T* to = static_cast<const T*>(args.stream[0]);
    while (i < range.end && reinterpret_cast<std::uintptr_t>(to + i) % vector_B != 0) {
      i = map_steps<Op, 1>(single, i, i + 1, args.alpha, args.beta);
    }
  }
  i = map_steps<Op, 4>(packed, i, range.end, args.alpha, args.beta);
  i = map_steps<Op, 1>(packed, i, range.end, args.alpha, args.beta);
  map_steps<Op, 1>(single, i, range.end, args.alpha, args.beta);
#else
  const T alpha = single.set(args.alpha);
  const T beta = single.set(args.beta);
  MEMKERN_LOOP
  for (std::int64_t k = i; k < range.end; ++k) Op::step(single, k, alpha, beta);
#endif
  if constexpr (kNonTemporal) store_fence();
  keep(args.stream[0]);
}

#define MEMKERN_EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

// One block with eight accumulators, which hides the latency of adding on all machines known.
template <class Op, class A>
MEMKERN_INLINE typename A::Value reduce_steps(const A& a, std::int64_t& i, std::int64_t end,
                                              double alpha, double start) {
  using V = typename A::Value;
  const std::int64_t lanes = A::lanes();
  const V va = A::set(alpha);
#define MEMKERN_DECLARE(u) V sum##u = A::set(start);
#define MEMKERN_STEP(u) sum##u = Op::step(a, i + (u)*lanes, va, sum##u);
  MEMKERN_EIGHT(MEMKERN_DECLARE)
  for (; i + 8 * lanes <= end; i += 8 * lanes) {
    MEMKERN_EIGHT(MEMKERN_STEP)
  }
#undef MEMKERN_STEP
#undef MEMKERN_DECLARE
  for (; i + lanes <= end; i += lanes) sum0 = Op::step(a, i, va, sum0);
  const auto join = [](V x, V y) { return Op::kSums ? A::add(x, y) : A::larger(x, y); };
  return join(join(join(sum0, sum1), join(sum2, sum3)), join(join(sum4, sum5), join(sum6, sum7)));
}

template <class T, class Op>
MEMKERN_INLINE double reduce_block(const StreamingArgs& args, std::int64_t i, std::int64_t end,
                                   double start) {
  const Single<T, false> single{args};
#if MEMKERN_SIMD
  using A = Packed<T, false>;
  const A packed{args};
  const auto vector = reduce_steps<Op>(packed, i, end, args.alpha, start);
  const T rest = reduce_steps<Op>(single, i, end, args.alpha, start);
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
  return static_cast<double>(reduce_steps<Op>(single, i, end, args.alpha, start));
#endif
}

template <class T, class Op>
void reduce(const void* p, Range range, int worker) {
  const StreamingArgs args = *static_cast<const StreamingArgs*>(p);
  double& partial = args.partial[worker * StreamingArgs::kPartialStride];
#if MEMKERN_SIMD
  const std::int64_t block = kBlock * Packed<T, false>::lanes();
#else
  const std::int64_t block = kBlock;
#endif
  for (std::int64_t i = range.begin; i < range.end; i += block) {
    const std::int64_t end = i + block < range.end ? i + block : range.end;
    if constexpr (Op::kSums) {
      partial += reduce_block<T, Op>(args, i, end, 0.0);
    } else {
      const double largest = reduce_block<T, Op>(args, i, end, partial);
      partial = largest > partial ? largest : partial;
    }
  }
  keep(args.partial);
}

// In the order of the workers, so that a team always finds the same result, and ready for the
// next invocation.
template <class Op>
void finish(const void* p, int workers) {
  const StreamingArgs& args = *static_cast<const StreamingArgs*>(p);
  double all = 0.0;
  for (int w = 0; w < workers; ++w) {
    double& partial = args.partial[w * StreamingArgs::kPartialStride];
    all = Op::kSums ? all + partial : partial > all ? partial : all;
    partial = 0.0;
  }
  *args.result = all;
}

// clang-format off
#define MEMKERN_MAP(name, streams, Op)                                                        \
  {name, MEMKERN_VARIANT, "float64", "", map<double, Op, false>, nullptr, streams},           \
  {name, MEMKERN_VARIANT, "float32", "", map<float, Op, false>, nullptr, streams},
#undef MEMKERN_STORE  // may differ from target to target
#if MEMKERN_STREAMS_PAST_CACHES
#define MEMKERN_STORE(name, streams, Op)                                                      \
  MEMKERN_MAP(name, streams, Op)                                                              \
  {name, "nt", "float64", "", map<double, Op, true>, nullptr, streams},                       \
  {name, "nt", "float32", "", map<float, Op, true>, nullptr, streams},
#else
#define MEMKERN_STORE MEMKERN_MAP
#endif
#define MEMKERN_REDUCE(name, streams, Op)                                                     \
  {name, MEMKERN_VARIANT, "float64", "", reduce<double, Op>, finish<Op>, streams},            \
  {name, MEMKERN_VARIANT, "float32", "", reduce<float, Op>, finish<Op>, streams},

constexpr Entry kEntries[] = {
    MEMKERN_STORE("stream.copy", 2, Copy)
    MEMKERN_STORE("stream.scale", 2, Scale)
    MEMKERN_STORE("stream.add", 3, Add)
    MEMKERN_STORE("stream.triad", 3, Triad)
    MEMKERN_STORE("bs.bs1", 2, Copy)
    MEMKERN_MAP("bs.bs2", 2, Axpby)
    MEMKERN_REDUCE("bs.bs3", 1, Norm)
    MEMKERN_REDUCE("bs.bs4", 2, Dot)
    MEMKERN_REDUCE("bs.bs5", 4, CgUpdate)
    MEMKERN_REDUCE("loops.load", 1, Load)
    MEMKERN_REDUCE("loops.sum", 1, Sum)
    MEMKERN_REDUCE("loops.dot", 2, Dot)
    MEMKERN_STORE("loops.init", 1, Init)
    MEMKERN_STORE("loops.copy", 2, Copy)
    MEMKERN_MAP("loops.update", 1, Update)
    MEMKERN_MAP("loops.daxpy", 2, Daxpy)
    MEMKERN_STORE("loops.triad", 3, Triad)
    MEMKERN_MAP("loops.nstream", 3, Nstream)
    MEMKERN_STORE("loops.schoenauer", 4, Schoenauer)
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "core/targets.inc"
