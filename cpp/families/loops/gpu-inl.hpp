// The operations of the loop kernels, the stencil and the product of a matrix and a vector on a GPU
// (Alappat et al. 2021).
#pragma once

#include "families/streaming/gpu-inl.hpp"

namespace memkern::gpu {
namespace {

#define MEMKERN_OPERATIONS
#include "families/loops/entries.inc"
#undef MEMKERN_OPERATIONS

constexpr int kStencilUnroll = 4;
constexpr int kMatvecUnroll = 8;

// Inner points: kUnroll rows of one column per thread.
struct StencilArgs {
  StreamingArgs a;
  Range range;          // of rows, without the first
  std::int64_t chunks;  // of columns, with as many columns as a block has threads
};

// Accessor to a point and its neighbours in registers, by the index relative to the point.
template <class T>
struct Around {
  using Value = T;
  struct {
    std::int64_t columns = 2;
  } args;
  T here, left, right, above, below;
  T* to;
  MEMKERN_ANYWHERE T load(int, std::int64_t i) const {
    return i == 0 ? here : i == -1 ? left : i == 1 ? right : i < 0 ? above : below;
  }
  MEMKERN_ANYWHERE void store(int, std::int64_t, T value) const { *to = value; }
  MEMKERN_ANYWHERE static T add(T x, T y) { return x + y; }
  MEMKERN_ANYWHERE static T mul(T x, T y) { return x * y; }
};

template <class T, int kUnroll>
struct StencilGrid : Stateless<StencilArgs> {
  static constexpr int kBatch = kUnroll < 4 ? kUnroll : 4;
  static constexpr int kMinBlocks = 1;

  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    const std::int64_t column = thread.block % g.chunks * thread.threads + thread.thread + 1;
    if (column > g.a.columns - 2) return;
    const std::int64_t first = g.range.begin + thread.block / g.chunks * kUnroll + 1;
    for (int u = 0; u < kUnroll; u += kBatch) rows(g, first + u, column);
  }

  // Up to kBatch rows of the range: all loads come before the arithmetic, so that all are in
  // flight, and each element of the column is loaded once. Instead of rows after the range, its
  // last one is loaded again, because the compiler issues no other load before one that depends on
  // a condition.
  MEMKERN_ANYWHERE static void rows(const Args& g, std::int64_t row, std::int64_t column) {
    if (row > g.range.end) return;
    const std::int64_t stride = g.a.columns;
    const T* from = static_cast<const T*>(g.a.stream[1]) + row * stride + column;
    T* to = static_cast<T*>(g.a.stream[0]) + row * stride + column;
    const std::int64_t last = g.range.end - row;
    T middle[kBatch + 2] = {from[-stride], from[0]};
    T left[kBatch];
    T right[kBatch];
    for (int u = 0; u < kBatch; ++u) {
      const T* at = from + (u < last ? u : last) * stride;
      left[u] = at[-1];
      right[u] = at[1];
      middle[u + 2] = at[stride];
    }
    const T alpha = static_cast<T>(g.a.alpha);
    for (int u = 0; u < kBatch; ++u) {
      if (row + u > g.range.end) break;
      const Around<T> around{{},        middle[u + 1], left[u],        right[u],
                             middle[u], middle[u + 2], to + u * stride};
      Stencil::step(around, 0, alpha, alpha);
    }
  }
};

// x0 += A x2, one row per thread; loads of kUnroll columns of A are in flight.
struct MatvecArgs {
  StreamingArgs a;
  Range range;
};
template <class T, int kUnroll>
struct Matvec : Stateless<MatvecArgs> {
  static constexpr int kMinBlocks = 1;
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    T* y = static_cast<T*>(g.a.stream[0]);
    const T* matrix = static_cast<const T*>(g.a.stream[1]);
    const T* x = static_cast<const T*>(g.a.stream[2]);
    const std::int64_t i = g.range.begin + thread.index();
    if (i >= g.range.end) return;
    const T* at = matrix + i;
    T sum = y[i];
    std::int64_t c = 0;
    MEMKERN_UNROLL(1)
    for (; c + kUnroll <= g.a.columns; c += kUnroll) {
      for (int u = 0; u < kUnroll; ++u, at += g.a.rows) {
        sum = Single<T>::mul_add(x[c + u], *at, sum);
      }
    }
    MEMKERN_UNROLL(1)
    for (; c < g.a.columns; ++c, at += g.a.rows) sum = Single<T>::mul_add(x[c], *at, sum);
    y[i] = sum;
  }
};

template <class T, int kRequested>
void stencil(const void* p, Range range, int threads, void* queue) {
  constexpr int kUnroll = kRequested == 0 ? kStencilUnroll : kRequested;
  const StreamingArgs& a = *static_cast<const StreamingArgs*>(p);
  const std::int64_t chunks = blocks_for(a.columns - 2, threads);
  in_grids(range, std::max<std::int64_t>(kMaxBlocks / chunks, 1) * kUnroll, [&](Range part) {
    const std::int64_t blocks = chunks * blocks_for(part.end - part.begin, kUnroll);
    launch<StencilGrid<T, kUnroll>>({a, part, chunks}, blocks, threads, 0, queue);
  });
}

template <class T, int kRequested>
void matvec(const void* p, Range range, int threads, void* queue) {
  constexpr int kUnroll = kRequested == 0 ? kMatvecUnroll : kRequested;
  const StreamingArgs& a = *static_cast<const StreamingArgs*>(p);
  in_grids(range, kMaxBlocks * threads, [&](Range part) {
    launch<Matvec<T, kUnroll>>({a, part}, blocks_for(part.end - part.begin, threads), threads, 0,
                               queue);
  });
}

}  // namespace
}  // namespace memkern::gpu
