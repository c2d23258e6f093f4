// CircusTent's access patterns (Williams et al. 2020) over any carrier of atomic operations:
// threads, those of a GPU, ranks that reach each other's memory. C++17, for CUDA's sake.
#pragma once

#include <cstdint>

#include "core/body.hpp"

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

// Plain is a load and a store, relaxed both: what the same accesses cost without being atomic.
enum class Primitive { Add, And, Or, Xor, Min, Max, Exchange, Cas, CasRetry, Plain };

// A carrier for words V of VAL and W of IDX in memory that the operations O reach. What one returns
// is used where its place in the pattern needs it, and with kUsed everywhere. O has kPrimitive and
//   load(at)                    a relaxed load
//   fetch(at, v)                combines v with what is there by the primitive, unless that is a
//                               compare-and-swap, and returns what was there
//   swap(at, expected, now)     puts `now` where `expected` is; returns whether it was, and leaves
//                               in `expected` what was found
template <class O, class V, class W, bool kUsed>
class Words {
 public:
  static constexpr Primitive kPrimitive = O::kPrimitive;

  // `neutral` is an operand that leaves a word as it is.
  MEMKERN_ANYWHERE Words(const AmoArgs& args, std::uint64_t neutral)
      : values_(static_cast<V*>(args.values)),
        index_(static_cast<W*>(args.index)),
        operand_(static_cast<V>(args.operand)),
        neutral_(static_cast<W>(neutral)) {}

  MEMKERN_ANYWHERE std::int64_t place(std::int64_t i) {
    return static_cast<std::int64_t>(index_[i]);
  }
  MEMKERN_ANYWHERE std::int64_t look(std::int64_t i) { return static_cast<std::int64_t>(same(i)); }
  MEMKERN_ANYWHERE std::int64_t follow(std::int64_t i) {
    const W next = same(i);
    returned_ += next;
    return static_cast<std::int64_t>(next);
  }
  MEMKERN_ANYWHERE void end(std::int64_t at) { end_ = static_cast<std::uint64_t>(at); }

  MEMKERN_ANYWHERE void update(std::int64_t at) { use(sum(values_ + at, operand_)); }
  MEMKERN_ANYWHERE V read(std::int64_t at) {
    if constexpr (kSwaps) return swap(values_ + at, [](V old) { return old; });
    return sum(values_ + at, operand_);
  }
  MEMKERN_ANYWHERE void put(std::int64_t at, V v) {
    if constexpr (kSwaps) {
      use(swap(values_ + at, [v](V) { return v; }));
    } else {
      use(sum(values_ + at, v));
    }
  }

  MEMKERN_ANYWHERE void add_to(std::uint64_t* tally) const {
    count(applied_, tally[kApplied]);
    tally[kReturned] += returned_;
    tally[kAttempts] += attempts_;
    tally[kSuccesses] += successes_;
    tally[kEnd] = end_;
  }

 protected:
  // Operands are added up by exclusive or where that is what they do to a value.
  MEMKERN_ANYWHERE static void count(std::uint64_t v, std::uint64_t& all) {
    all = kPrimitive == Primitive::Xor ? all ^ v : all + v;
  }

  MEMKERN_ANYWHERE void use(V old) {
    if constexpr (kUsed) returned_ += static_cast<std::uint64_t>(old);
  }

  // Combines v with what is there, by the primitive, and returns what was there.
  MEMKERN_ANYWHERE V sum(V* at, V v) {
    if constexpr (kSwaps) {
      return swap(at, [v](V old) { return static_cast<V>(old + v); });
    } else {
      count(static_cast<std::uint64_t>(v), applied_);
      return O::fetch(at, v);
    }
  }

  V* values_;
  W* index_;
  V operand_;
  W neutral_;
  std::uint64_t applied_ = 0;
  std::uint64_t returned_ = 0;

 private:
  static constexpr bool kSwaps = kPrimitive == Primitive::Cas || kPrimitive == Primitive::CasRetry;

  // One of IDX, left as it is: indices are only ever read.
  MEMKERN_ANYWHERE W same(std::int64_t i) {
    if constexpr (kSwaps) {
      return swap(index_ + i, [](W old) { return old; });
    } else {
      return O::fetch(index_ + i, neutral_);
    }
  }

  // Swaps in `next(expected)`; what is expected was loaded just before. Returns what was found.
  template <class T, class Next>
  MEMKERN_ANYWHERE T swap(T* at, const Next& next) {
    T old = O::load(at);
    while (true) {
      const T expected = old;
      const T now = next(expected);
      const bool done = O::swap(at, old, now);
      ++attempts_;
      if (done) {
        ++successes_;
        // Of IDX and of what is swapped for itself this is nothing.
        applied_ += static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(expected);
      }
      if (done || kPrimitive == Primitive::Cas) return old;
    }
  }

  std::uint64_t attempts_ = 0;
  std::uint64_t successes_ = 0;
  std::uint64_t end_ = 0;
};

// The operand of a primitive that leaves every word as it is.
constexpr std::uint64_t neutral_of(Primitive primitive) {
  const bool ones = primitive == Primitive::And || primitive == Primitive::Min;
  return ones ? ~std::uint64_t{0} : 0;
}

}  // namespace memkern
