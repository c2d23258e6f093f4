// Elements that are accessed by index, or all at one place, on a GPU (Beebe et al. 2022).
#pragma once

#include "families/streaming/gpu-inl.hpp"

namespace memkern::gpu {
namespace {

constexpr int kIndexedUnroll = 4;

template <class T, class By>
struct Indexed : Single<T> {
  MEMKERN_ANYWHERE std::int64_t at(int k, std::int64_t i) const {
    if (By::of(k) == kDirect) return i;
    return static_cast<const typename By::I*>(this->args.index[By::of(k)])[i];
  }
};

// Every access goes to element 0; volatile, so that none is optimised away.
template <class T>
struct Central : Single<T> {
  MEMKERN_ANYWHERE T load(int k, std::int64_t) const {
    return *static_cast<const volatile T*>(this->args.stream[k]);
  }
  MEMKERN_ANYWHERE void store(int k, std::int64_t, T value) const {
    *static_cast<volatile T*>(this->args.stream[k]) = value;
  }
};

template <class A, class Op, int kStreams, int kUnroll>
void map_elements(const void* p, Range range, int threads, void* queue) {
  map_by<A, Op, kStreams, kUnroll>(*static_cast<const StreamingArgs*>(p), range, threads, queue);
}

}  // namespace
}  // namespace memkern::gpu
