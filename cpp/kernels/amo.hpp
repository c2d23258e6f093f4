// CircusTent's access patterns (Williams et al. 2020) over any carrier of atomic operations:
// threads, those of a GPU, ranks that reach each other's memory. C++17, for CUDA's sake.
#pragma once

#include <cstdint>

#include "core/kernel.hpp"

namespace memkern {

// What a worker has added up since its row was last cleared, modulo 2^64.
enum Tally : int {
  kApplied,    // operands that went into VAL (of xor, their exclusive or)
  kReturned,   // values that came back from it, where they are used, and places of a walk
  kAttempts,   // compare-and-swaps tried
  kSuccesses,  // and done
  kEnd,        // where its last walk ended
  kIterations,
  kTallies
};

struct AmoArgs {
  void* values = nullptr;    // VAL
  void* index = nullptr;     // IDX
  std::int64_t stride = 1;   // words from VAL[i] to VAL[i + 1]
  std::int64_t hot = 1;      // words that CENTRAL goes to
  bool shared = false;       // whether workers go over the same words where each could have its own
  std::int64_t operand = 1;  // of what reads or updates a value
  std::uint64_t* tally = nullptr;  // worker w's row begins at w * tally_stride
  std::int64_t tally_stride = 0;
  std::int64_t workers = 0;
};

// A carrier offers, for words of IDX: `place(i)` reads one, `look(i)` and `follow(i)` do so by an
// operation that leaves it as it is; for words of VAL: `update(at)` applies the case's operand,
// `read(at)` the same and returns what was there, `put(at, v)` applies v; and `end(at)`.
namespace amo {

struct Rand {  // AMO(VAL[IDX[i]])
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs&, Range r, int) {
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i) c.update(c.place(i));
  }
};

// The word of VAL that belongs to a worker's first iteration.
MEMKERN_ANYWHERE std::int64_t first_word(const AmoArgs& args, Range r) {
  return args.shared ? 0 : r.begin * args.stride;
}

struct Strided {  // AMO(VAL[i * stride])
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs& args, Range r, int) {
    std::int64_t at = first_word(args, r);
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i, at += args.stride) c.update(at);
  }
};

struct Chase {  // start = AMO(IDX[start])
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs&, Range r, int) {
    std::int64_t at = r.begin;
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i) at = c.follow(at);
    c.end(at);
  }
};

// AMO(VAL[0]); of several hot words, shared ones are gone to in turn, else each worker keeps to
// one.
struct Central {
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs& args, Range r, int worker) {
    const std::int64_t step = args.shared ? 1 : 0;
    std::int64_t word = worker % args.hot;
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      c.update(word * args.stride);
      word += step;
      if (word == args.hot) word = 0;
    }
  }
};

struct Scatter {  // dest = AMO(IDX[i+1]); val = AMO(VAL[i]); AMO(VAL[dest], val)
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs& args, Range r, int) {
    std::int64_t at = first_word(args, r);
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i, at += args.stride) {
      const std::int64_t dest = c.look(i + 1);
      c.put(dest, c.read(at));
    }
  }
};

struct Gather {  // src = AMO(IDX[i+1]); val = AMO(VAL[src]); AMO(VAL[i], val)
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs& args, Range r, int) {
    std::int64_t at = first_word(args, r);
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i, at += args.stride) {
      const std::int64_t src = c.look(i + 1);
      c.put(at, c.read(src));
    }
  }
};

struct ScatterGather {  // src = AMO(IDX[i]); dest = AMO(IDX[i+1]); then as above
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs&, Range r, int) {
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const std::int64_t src = c.look(i);
      const std::int64_t dest = c.look(i + 1);
      c.put(dest, c.read(src));
    }
  }
};

}  // namespace amo
}  // namespace memkern
