// The finite-element streaming tests BS6 to BS8 on a GPU (Chalmers and Warburton 2020), with a
// thread for each row of Z or Z^T. In a gather, the entries of a block's rows are contiguous: the
// threads load their values into shared memory and then sum each row from there. A block has as
// many rows as threads, or (balanced) rows with about as many entries as every other block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "families/streaming/args.hpp"
#include "gpu/grid.hpp"

namespace memkern::gpu {
namespace {

constexpr int kThreads = 256;
// Staged entries per row, on average: a block of 256 rows has space for 512 entries.
constexpr int kStaged = 2;

MEMKERN_ANYWHERE std::int64_t smaller(std::int64_t x, std::int64_t y) { return x < y ? x : y; }
MEMKERN_ANYWHERE std::int64_t larger(std::int64_t x, std::int64_t y) { return x > y ? x : y; }

struct MeshArgs {
  StreamingArgs a;
  Range range;
};

// Loads the values of so many entries into shared memory. All loads of kStaged entries are issued
// before the first value is needed: instead of entries after the last one, that one is loaded
// again, because the compiler issues no other load before one that depends on a condition.
template <class T, class I>
MEMKERN_ANYWHERE void load_values(const T* local, const I* column, std::int64_t entries,
                                  const Thread& thread, T* stage) {
  MEMKERN_ROLLED
  for (std::int64_t first = thread.thread; first < entries; first += kStaged * thread.threads) {
    T values[kStaged];
    for (int u = 0; u < kStaged; ++u) {
      values[u] = local[column[smaller(first + u * thread.threads, entries - 1)]];
    }
    for (int u = 0; u < kStaged; ++u) stage[first + u * thread.threads] = values[u];
  }
}

// Shared memory for so many entries: a thread stores kStaged values at a time, also after the last
// entry, because the compiler would move a load behind the condition of its store.
template <class T>
std::size_t staged_B(std::int64_t entries, int threads) {
  const std::int64_t at_a_time = std::int64_t{kStaged} * threads;
  return static_cast<std::size_t>(blocks_for(entries, at_a_time) * at_a_time) * sizeof(T);
}

// The sum of entries [j, end) of a block, whose first `room` entries have values in shared memory.
template <class T, class I>
MEMKERN_ANYWHERE T sum_of(std::int64_t j, std::int64_t end, const T* stage, std::int64_t room,
                          const T* local, const I* column) {
  T sum = 0;
  for (; j < end && j < room; ++j) sum += stage[j];
  // Entries for which there was no space.
  for (; j < end; ++j) sum += local[column[j]];
  return sum;
}

// x0 = Z^T x1
template <class T, class I>
struct Gather {
  using Args = MeshArgs;
  struct Locals {
    std::int64_t begin = 0;  // of the thread's row, in shared memory
    std::int64_t end = 0;
  };
  static constexpr int kPhases = 2;

  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals& row,
                                   unsigned char* shared) {
    const I* starts = static_cast<const I*>(g.a.index[0]);
    const I* column = static_cast<const I*>(g.a.index[1]);
    const T* local = static_cast<const T*>(g.a.stream[1]);
    T* stage = reinterpret_cast<T*>(shared);
    const std::int64_t first = g.range.begin + thread.block * thread.threads;
    const std::int64_t r = first + thread.thread;
    const std::int64_t begin = starts[first];
    const std::int64_t room = std::int64_t{kStaged} * thread.threads;
    if constexpr (kPhase == 0) {
      const std::int64_t entries = starts[smaller(first + thread.threads, g.range.end)] - begin;
      if (r < g.range.end) row = {starts[r] - begin, starts[r + 1] - begin};
      load_values(local, column + begin, smaller(entries, room), thread, stage);
    } else if (r < g.range.end) {
      static_cast<T*>(g.a.stream[0])[r] =
          sum_of(row.begin, row.end, stage, room, local, column + begin);
    }
  }
};

// The same with blocks of about as many entries each, however long their rows are.
template <class T, class I>
struct BalancedGather : Stateless<MeshArgs, 2> {
  template <int kPhase>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&,
                                   unsigned char* shared) {
    const I* starts = static_cast<const I*>(g.a.index[0]);
    const I* column = static_cast<const I*>(g.a.index[1]);
    const T* local = static_cast<const T*>(g.a.stream[1]);
    T* stage = reinterpret_cast<T*>(shared);
    const std::int64_t first = larger(g.a.row_blocks[thread.block], g.range.begin);
    const std::int64_t last = smaller(g.a.row_blocks[thread.block + 1], g.range.end);
    if (first >= last) return;
    const std::int64_t begin = starts[first];
    if constexpr (kPhase == 0) {
      const std::int64_t entries = smaller(starts[last] - begin, g.a.block_entries);
      load_values(local, column + begin, entries, thread, stage);
    } else {
      for (std::int64_t r = first + thread.thread; r < last; r += thread.threads) {
        static_cast<T*>(g.a.stream[0])[r] = sum_of(starts[r] - begin, starts[r + 1] - begin, stage,
                                                   g.a.block_entries, local, column + begin);
      }
    }
  }
};

// x0 = Z x1; elements of empty rows are not changed
template <class T, class I>
struct Scatter : Stateless<MeshArgs> {
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    const std::int64_t i = g.range.begin + thread.index();
    if (i >= g.range.end) return;
    const std::int64_t id = static_cast<const I*>(g.a.index[0])[i];
    if (id < 0) return;
    static_cast<T*>(g.a.stream[0])[i] = static_cast<const T*>(g.a.stream[1])[id];
  }
};

// x0 = Z Z^T x0, one row of Z^T per thread. A row with one entry is read and written like any
// other: the compiler cannot remove this, because the sum of zero and a value can differ from the
// value.
template <class T, class I>
struct GatherScatter : Stateless<MeshArgs> {
  template <int>
  MEMKERN_ANYWHERE static void run(const Args& g, const Thread& thread, Locals&, unsigned char*) {
    const I* starts = static_cast<const I*>(g.a.index[0]);
    const I* column = static_cast<const I*>(g.a.index[1]);
    T* local = static_cast<T*>(g.a.stream[0]);
    const std::int64_t r = g.range.begin + thread.index();
    if (r >= g.range.end) return;
    const std::int64_t begin = starts[r];
    const std::int64_t end = starts[r + 1];
    T sum = 0;
    for (std::int64_t j = begin; j < end; ++j) sum += local[column[j]];
    for (std::int64_t j = begin; j < end; ++j) local[column[j]] = sum;
  }
};

template <class T, class K>
void start(const void* p, Range range, int threads, void* queue) {
  const std::size_t stage_B = K::kPhases > 1 ? staged_B<T>(kStaged * threads, threads) : 0;
  in_grids(range, kMaxBlocks * threads, [&](Range part) {
    launch<K>({*static_cast<const StreamingArgs*>(p), part},
              blocks_for(part.end - part.begin, threads), threads, stage_B, queue);
  });
}

template <class T, class K>
void start_balanced(const void* p, Range range, int threads, void* queue) {
  const StreamingArgs& a = *static_cast<const StreamingArgs*>(p);
  in_grids({0, a.row_block_count}, kMaxBlocks, [&](Range part) {
    StreamingArgs blocks = a;
    blocks.row_blocks += part.begin;
    launch<K>({blocks, range}, part.end - part.begin, threads,
              staged_B<T>(a.block_entries, threads), queue);
  });
}

}  // namespace
}  // namespace memkern::gpu
