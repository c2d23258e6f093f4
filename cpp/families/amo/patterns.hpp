// CircusTent's access patterns (Williams et al. 2020), as templates over the class that executes
// the atomic operations: by threads of the processor or of a GPU. C++17, as CUDA sources include
// it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/body.hpp"
#include "engine/primitive.hpp"

namespace memkern {

// Sums of a worker since its row was last cleared, modulo 2^64.
enum Tally : int {
  kApplied,    // of the operands applied to VAL (for xor, their exclusive or)
  kReturned,   // of the values returned by VAL, if they are used, and of the indices of a chase
  kAttempts,   // number of compare-and-swaps
  kSuccesses,  // number of successful ones
  kEnd,        // the index at which its last chase ended
  kIterations,
  kTallies
};

struct AmoArgs {
  void* values = nullptr;          // VAL
  void* index = nullptr;           // IDX
  std::int64_t stride = 1;         // words from VAL[i] to VAL[i + 1]
  std::int64_t hot = 1;            // number of words that CENTRAL updates
  bool shared = false;             // whether all workers access the same words, or each its own
  std::int64_t operand = 1;        // of operations that read or update a value
  std::uint64_t* tally = nullptr;  // worker w's row begins at w * tally_stride
  std::int64_t tally_stride = 0;
  std::int64_t workers = 0;
};

// A carrier C has these functions for words of IDX: `load_index(i)` reads one; `fetch_index(i)` and
// `follow(i)` read one by an atomic operation that does not change it. For words of VAL:
// `update(at)` applies the case's operand, `read(at)` also returns the old value, `apply(at, v)`
// applies v. `end(at)` records the end of a chase.
namespace amo {

struct Rand {  // AMO(VAL[IDX[i]])
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs&, Range r, int) {
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i) c.update(c.load_index(i));
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

// AMO(VAL[0]). With several hot words, a worker updates them in turn if they are shared, else
// always the same one.
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
      const std::int64_t dest = c.fetch_index(i + 1);
      c.apply(dest, c.read(at));
    }
  }
};

struct Gather {  // src = AMO(IDX[i+1]); val = AMO(VAL[src]); AMO(VAL[i], val)
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs& args, Range r, int) {
    std::int64_t at = first_word(args, r);
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i, at += args.stride) {
      const std::int64_t src = c.fetch_index(i + 1);
      c.apply(at, c.read(src));
    }
  }
};

struct ScatterGather {  // src = AMO(IDX[i]); dest = AMO(IDX[i+1]); then as above
  template <class C>
  MEMKERN_ANYWHERE static void run(C& c, const AmoArgs&, Range r, int) {
    MEMKERN_ROLLED
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const std::int64_t src = c.fetch_index(i);
      const std::int64_t dest = c.fetch_index(i + 1);
      c.apply(dest, c.read(src));
    }
  }
};

// Whether all operations of a pattern have the case's operand, so that IDX is not operated on.
template <class Pattern>
inline constexpr bool kHasConstantOperand =
    std::is_same_v<Pattern, Rand> || std::is_same_v<Pattern, Strided> ||
    std::is_same_v<Pattern, Central>;

}  // namespace amo

// A carrier for words V of VAL and W of IDX. The values that operations return are used if the
// pattern needs them, and with kUsed always. The class O of operations has kPrimitive and, static
// or with a state of its own,
//   load(at)                    a relaxed load
//   fetch(at, v)                combines v with the word by the primitive, unless that is a
//                               compare-and-swap, and returns the old value
//   swap(at, expected, now)     stores `now` if the word is `expected`; returns whether it was, and
//                               sets `expected` to the old value
//   store(at, v)                a relaxed store, of CasTarget only
template <class O, class V, class W, bool kUsed>
class Words {
 public:
  static constexpr Primitive kPrimitive = O::kPrimitive;

  // `neutral` is an operand that does not change a word.
  MEMKERN_ANYWHERE Words(const AmoArgs& args, std::uint64_t neutral, O operations = {})
      : operations_(operations),
        values_(static_cast<V*>(args.values)),
        index_(static_cast<W*>(args.index)),
        operand_(static_cast<V>(args.operand)),
        neutral_(static_cast<W>(neutral)) {}

  MEMKERN_ANYWHERE std::int64_t load_index(std::int64_t i) {
    return static_cast<std::int64_t>(index_[i]);
  }
  MEMKERN_ANYWHERE std::int64_t fetch_index(std::int64_t i) {
    return static_cast<std::int64_t>(fetch_unchanged(i));
  }
  MEMKERN_ANYWHERE std::int64_t follow(std::int64_t i) {
    const W next = fetch_unchanged(i);
    returned_ += next;
    return static_cast<std::int64_t>(next);
  }
  MEMKERN_ANYWHERE void end(std::int64_t at) { end_ = static_cast<std::uint64_t>(at); }

  MEMKERN_ANYWHERE void update(std::int64_t at) { use(combine(values_ + at, operand_)); }
  MEMKERN_ANYWHERE V read(std::int64_t at) {
    if constexpr (kSwaps) return swap(values_ + at, [](V old) { return old; });
    return combine(values_ + at, operand_);
  }
  MEMKERN_ANYWHERE void apply(std::int64_t at, V v) {
    if constexpr (kSwaps) {
      use(swap<kIsTarget>(values_ + at, [v](V) { return v; }));
    } else {
      use(combine(values_ + at, v));
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
  // Adds up an operand: by exclusive or if that is the primitive.
  MEMKERN_ANYWHERE static void count(std::uint64_t v, std::uint64_t& all) {
    all = kPrimitive == Primitive::Xor ? all ^ v : all + v;
  }

  MEMKERN_ANYWHERE void use(V old) {
    if constexpr (kUsed) returned_ += static_cast<std::uint64_t>(old);
  }

  // Combines v with a word by the primitive and returns the old value.
  MEMKERN_ANYWHERE V combine(V* at, V v) {
    if constexpr (kSwaps) {
      return swap<kIsTarget>(at, [v](V old) { return kIsTarget ? old : static_cast<V>(old + v); });
    } else {
      count(static_cast<std::uint64_t>(v), applied_);
      return operations_.fetch(at, v);
    }
  }

  static constexpr bool kIsTarget = kPrimitive == Primitive::CasTarget;
  static constexpr bool kSwaps =
      kIsTarget || kPrimitive == Primitive::Cas || kPrimitive == Primitive::CasRetry;

  O operations_;
  V* values_;
  W* index_;
  V operand_;
  W neutral_;
  std::uint64_t applied_ = 0;
  std::uint64_t returned_ = 0;

 private:
  // Reads a word of IDX by an atomic operation that does not change it.
  MEMKERN_ANYWHERE W fetch_unchanged(std::int64_t i) {
    if constexpr (kSwaps) {
      return swap(index_ + i, [](W old) { return old; });
    } else {
      return operations_.fetch(index_ + i, neutral_);
    }
  }

  // Replaces the word, loaded just before, by next(word). Returns the old value. With kStoresBack,
  // a failed attempt stores the word's value in the expected one, which is the word.
  template <bool kStoresBack = false, class T, class Next>
  MEMKERN_ANYWHERE T swap(T* at, const Next& next) {
    T old = operations_.load(at);
    while (true) {
      const T expected = old;
      const T now = next(expected);
      const bool done = operations_.swap(at, old, now);
      ++attempts_;
      if (done) {
        ++successes_;
        // Zero for IDX, and if a word is replaced by itself.
        applied_ += static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(expected);
      }
      if constexpr (kStoresBack) {
        if (!done) operations_.store(at, old);
      }
      if (done || kPrimitive != Primitive::CasRetry) return old;
    }
  }

  std::uint64_t attempts_ = 0;
  std::uint64_t successes_ = 0;
  std::uint64_t end_ = 0;
};

// The operand of a primitive that does not change any word.
constexpr std::uint64_t neutral_of(Primitive primitive) {
  const bool ones = primitive == Primitive::And || primitive == Primitive::Min;
  return ones ? ~std::uint64_t{0} : 0;
}

}  // namespace memkern
