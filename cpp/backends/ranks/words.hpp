// The carrier of atomic patterns whose words are distributed over ranks, for the one-sided
// operations of any library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/library.hpp"
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

}  // namespace memkern::ranks
