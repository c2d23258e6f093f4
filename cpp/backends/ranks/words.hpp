// The carrier of atomic patterns whose words are distributed over ranks, for the one-sided
// operations of any library, its entries, and the threads of a rank that run them.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/library.hpp"
#include "backends/ranks/settings.hpp"
#include "core/parts.hpp"
#include "engine/device.hpp"
#include "families/amo/patterns.hpp"

namespace memkern::ranks {

// The operations of `Words` for a library.
template <Library L, Primitive primitive>
class Operations {
 public:
  static constexpr Primitive kPrimitive = primitive;

  Operations(typename L::Context& context, const Arrays<L>& arrays)
      : context_(&context), arrays_(&arrays) {}

  template <class T>
  T get(const T* at) const {
    const auto p = arrays_->place_of(at);
    // A program reads its own words by an ordinary load.
    if (p.rank == L::rank()) return *reinterpret_cast<const T*>(L::own(*p.memory) + p.at);
    return context_->template get<T>(p);
  }
  template <class T>
  T load(const T* at) const {
    return context_->template load<T>(arrays_->place_of(at));
  }
  template <class T>
  T fetch(const T* at, T v) const {
    return context_->template fetch<primitive>(arrays_->place_of(at), v);
  }
  template <class T>
  bool swap(const T* at, T& expected, T now) const {
    const T wanted = expected;
    expected = context_->swap(arrays_->place_of(at), wanted, now);
    return expected == wanted;
  }
  // Access for updates that are completed later.
  typename L::Context& context() const { return *context_; }
  auto place_of(const void* at) const { return arrays_->place_of(at); }

 private:
  typename L::Context* context_;
  const Arrays<L>* arrays_;
};

// Completes updates of VAL in batches, except compare-and-swaps, which need the old value. All
// other operations are complete before the next one begins.
template <Library L, Primitive primitive, class V, class W, bool kUsed>
class RemoteWords : public Words<Operations<L, primitive>, V, W, kUsed> {
  using Base = Words<Operations<L, primitive>, V, W, kUsed>;

 public:
  RemoteWords(const AmoArgs& args, typename L::Context& context, const Arrays<L>& arrays,
              std::int64_t batch)
      : Base(args, kNeutral, {context, arrays}),
        operands_(static_cast<std::size_t>(batch)),
        old_(static_cast<std::size_t>(kUsed ? batch : 0)) {}

  std::int64_t load_index(std::int64_t i) {
    return static_cast<std::int64_t>(this->operations_.get(this->index_ + i));
  }
  void update(std::int64_t at) {
    if constexpr (Base::kSwaps) {
      Base::update(at);
    } else {
      start(this->values_ + at, this->operand_);
    }
  }
  V read(std::int64_t at) {
    if constexpr (!L::kOrdered) complete();
    return Base::read(at);
  }
  void apply(std::int64_t at, V v) {
    if constexpr (Base::kSwaps) {
      Base::apply(at, v);
    } else {
      start(this->values_ + at, v);
    }
  }

  // To be called at the end.
  void complete() {
    if (pending_ == 0) return;
    const auto memory = this->operations_.place_of(this->values_).memory;
    this->operations_.context().complete_all(*memory);
    if constexpr (kUsed) {
      for (std::size_t k = 0; k < pending_; ++k) this->use(old_[k]);
    }
    pending_ = 0;
  }

 private:
  // MPICH 4.0 computes minima of words as signed numbers; this value exceeds any index, signed or
  // unsigned.
  static constexpr std::uint64_t kNeutral = primitive == Primitive::Min ? static_cast<W>(~W{0}) >> 1
                                                                        : neutral_of(primitive);

  // Starts to combine v with a word, and completes the batch if this is its last update.
  void start(const V* word, V v) {
    auto& context = this->operations_.context();
    const auto p = this->operations_.place_of(word);
    this->count(static_cast<std::uint64_t>(v), this->applied_);
    if (operands_.size() > 1) {
      V& operand = operands_[pending_];
      operand = v;
      if constexpr (kUsed) {
        context.template start_fetch<primitive>(p, operand, old_[pending_]);
      } else {
        context.template start_update<primitive>(p, operand);
      }
      if (++pending_ == operands_.size()) complete();
    } else if constexpr (kUsed) {
      this->use(context.template fetch<primitive>(p, v));
    } else {
      context.template start_update<primitive>(p, v);
      context.complete(p);
    }
  }

  std::vector<V> operands_;
  std::vector<V> old_;
  std::size_t pending_ = 0;
};

// Adds this invocation's sums to a worker's row of tallies, which may be on any rank.
template <class L, class Carrier>
void add_tally(const Carrier& words, const AmoArgs& args, std::int64_t worker,
               std::int64_t iterations) {
  const auto row = arrays<L>().place_of(args.tally + worker * args.tally_stride);
  std::uint64_t tally[kTallies];
  L::get(row, tally, sizeof tally);
  words.add_to(tally);
  tally[kIterations] += static_cast<std::uint64_t>(iterations);
  L::put(row, tally, sizeof tally);
}

template <class L, class Pattern, class V, class W, Primitive kPrimitive, bool kUsed>
void launch(const void* p, Range range, int, void* queue) {
  const AmoArgs args = *static_cast<const AmoArgs*>(p);
  const Settings& settings = *static_cast<const Settings*>(queue);
  const auto workers = static_cast<int>(args.workers);
  const int threads = workers / L::ranks();
  const int first = (L::rank() + settings.shift) % L::ranks() * threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const int worker = first + omp_get_thread_num();
    const Range own = contiguous_part(range.end - range.begin, workers, worker);
    const Range part{range.begin + own.begin, range.begin + own.end};
    typename L::Context context(settings.private_contexts);
    RemoteWords<L, kPrimitive, V, W, kUsed> words(args, context, arrays<L>(), settings.flush_every);
    Pattern::run(words, args, part, worker);
    words.complete();
    add_tally<L>(words, args, worker, part.end - part.begin);
  }
}

// Adds the entries of a kernel for words V of VAL and W of IDX if L::has<primitive, V>(f) is true:
// the library has the primitive; with `f`, one that returns the old value.
template <class L, class Pattern, class V, class W>
class Rows {
 public:
  Rows(std::vector<DeviceEntry>& all, const char* kernel, const char* dtype, const char* index)
      : all_(all), kernel_(kernel), dtype_(dtype), index_(index) {
    add<Primitive::Add>("add/relaxed/used", "add/relaxed/unused");
    add<Primitive::And>("and/relaxed/used", "and/relaxed/unused");
    add<Primitive::Or>("or/relaxed/used", "or/relaxed/unused");
    add<Primitive::Xor>("xor/relaxed/used", "xor/relaxed/unused");
    add<Primitive::Min>("min/relaxed/used", "min/relaxed/unused");
    add<Primitive::Max>("max/relaxed/used", "max/relaxed/unused");
    add<Primitive::Exchange>("exchange/relaxed/used", "exchange/relaxed/unused");
    add<Primitive::Cas>("cas/relaxed/used", nullptr);
    add<Primitive::CasRetry>("cas-retry/relaxed/used", nullptr);
  }

 private:
  static constexpr bool kChase = std::is_same_v<Pattern, amo::Chase>;
  static constexpr bool kConstant = amo::kHasConstantOperand<Pattern>;

  template <Primitive kPrimitive>
  void add(const char* used, const char* unused) {
    constexpr bool kSwaps = kPrimitive == Primitive::Cas || kPrimitive == Primitive::CasRetry;
    constexpr bool kFetches = L::template has<kPrimitive, V>(true);
    constexpr bool kUpdates = L::template has<kPrimitive, V>(false) && !kSwaps && !kChase;
    if constexpr (kConstant || kPrimitive != Primitive::Exchange) {
      if constexpr (kFetches) push(used, launch<L, Pattern, V, W, kPrimitive, true>);
      // Other patterns fetch indices, and values that they apply to other words.
      if constexpr (kUpdates && (kFetches || kConstant)) {
        push(unused, launch<L, Pattern, V, W, kPrimitive, false>);
      }
    }
  }
  void push(const char* template_variant, Launch start) {
    all_.push_back(
        {{kernel_, "rma", dtype_, index_, nullptr, nullptr, 0, 0, template_variant}, start, 1});
  }

  std::vector<DeviceEntry>& all_;
  const char* kernel_;
  const char* dtype_;
  const char* index_;
};

template <class L, class Pattern>
void add_words(std::vector<DeviceEntry>& all, const char* kernel, bool indexed) {
  Rows<L, Pattern, std::uint64_t, std::uint64_t>(all, kernel, "uint64", indexed ? "int64" : "");
  Rows<L, Pattern, std::uint32_t, std::uint32_t>(all, kernel, "uint32", indexed ? "int32" : "");
}
template <class L, class Pattern>
void add_numbers(std::vector<DeviceEntry>& all, const char* kernel, bool indexed) {
  add_words<L, Pattern>(all, kernel, indexed);
  Rows<L, Pattern, double, std::uint64_t>(all, kernel, "float64", indexed ? "int64" : "");
  Rows<L, Pattern, float, std::uint32_t>(all, kernel, "float32", indexed ? "int32" : "");
}

template <class L>
void add_atomics(std::vector<DeviceEntry>& all) {
  add_numbers<L, amo::Rand>(all, "amo.rand", true);
  add_numbers<L, amo::Strided>(all, "amo.stride1", false);
  add_numbers<L, amo::Strided>(all, "amo.striden", false);
  add_numbers<L, amo::Central>(all, "amo.central", false);
  add_words<L, amo::Chase>(all, "amo.ptrchase", true);
  add_words<L, amo::Scatter>(all, "amo.scatter", true);
  add_words<L, amo::Gather>(all, "amo.gather", true);
  add_words<L, amo::ScatterGather>(all, "amo.sg", true);
}

}  // namespace memkern::ranks
