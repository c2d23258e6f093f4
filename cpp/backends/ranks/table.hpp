// The table of the entries for a library, and the threads of a rank that run atomic patterns.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/gather.hpp"
#include "backends/ranks/messages.hpp"
#include "backends/ranks/settings.hpp"
#include "backends/ranks/words.hpp"
#include "core/parts.hpp"
#include "engine/device.hpp"
#include "families/amo/patterns.hpp"

namespace memkern::ranks {

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
const std::vector<DeviceEntry>& table() {
  static const std::vector<DeviceEntry> entries = [] {
    std::vector<DeviceEntry> all;
    add_numbers<L, amo::Rand>(all, "amo.rand", true);
    add_numbers<L, amo::Strided>(all, "amo.stride1", false);
    add_numbers<L, amo::Strided>(all, "amo.striden", false);
    add_numbers<L, amo::Central>(all, "amo.central", false);
    add_words<L, amo::Chase>(all, "amo.ptrchase", true);
    add_words<L, amo::Scatter>(all, "amo.scatter", true);
    add_words<L, amo::Gather>(all, "amo.gather", true);
    add_words<L, amo::ScatterGather>(all, "amo.sg", true);
    add_gathers<L, Single>(all, "single");
    if constexpr (requires { L::add_entries(all); }) L::add_entries(all);
    add_messages<L>(all);
    return all;
  }();
  return entries;
}

}  // namespace memkern::ranks
