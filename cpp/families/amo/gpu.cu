// The table of atomic memory operations on a GPU.
#include "families/amo/gpu-inl.hpp"

#include <set>
#include <string>

#include "gpu/registry.hpp"

namespace memkern::gpu {
namespace {

constexpr const char* kPrimitives[] = {"add", "and",      "or",  "xor",       "min",
                                       "max", "exchange", "cas", "cas-retry", "plain"};
constexpr const char* kOrders[] = {"relaxed", "acq_rel", "seq_cst"};

// Names such as "add/relaxed/used", which last as long as the table.
const char* name_of(Primitive primitive, Order order, bool used) {
  static auto* names = new std::set<std::string>;
  const std::string name = std::string(kPrimitives[static_cast<int>(primitive)]) + "/" +
                           kOrders[static_cast<int>(order)] + (used ? "/used" : "/unused");
  return names->insert(name).first->c_str();
}

// Adds the entries of a kernel for words V of VAL and W of IDX.
template <class Pattern, class V, class W>
class Rows {
 public:
  Rows(std::vector<DeviceEntry>& all, const char* kernel, const char* index)
      : all_(all), kernel_(kernel), index_(index) {
    add_orders<Primitive::Add>();
    add<Primitive::Plain>("device");
    add<Primitive::Add, Order::Relaxed, Scope::System>("system");
    if constexpr (kIntegers) add_integers();
    if constexpr (kParallel) {
      constexpr auto kCyclic = Assignment::Cyclic;
      add<Primitive::Add, Order::Relaxed, Scope::Device, kCyclic>("coalesced");
      add<Primitive::Plain, Order::Relaxed, Scope::Device, kCyclic>("coalesced");
      if constexpr (kIntegers) {
        add<Primitive::Cas, Order::Relaxed, Scope::Device, kCyclic>("coalesced");
      }
    }
    if constexpr (kIntegers && std::is_same_v<Pattern, amo::Central>) {
      add_gathered<Primitive::Add, Primitive::And, Primitive::Or, Primitive::Xor, Primitive::Min,
                   Primitive::Max>();
    }
  }

 private:
  static constexpr bool kIntegers = std::is_integral_v<V>;
  static constexpr bool kChase = std::is_same_v<Pattern, amo::Chase>;
  // Iterations do not depend on each other, and access different words.
  static constexpr bool kParallel = !kChase && !std::is_same_v<Pattern, amo::Central>;

  // Primitives of integers; the operand of each does not change an index.
  void add_integers() {
    add<Primitive::And>("device");
    add<Primitive::Or>("device");
    add<Primitive::Xor>("device");
    add<Primitive::Min>("device");
    add<Primitive::Max>("device");
    add_orders<Primitive::Cas>();
    add_orders<Primitive::CasRetry>();
    add<Primitive::Cas, Order::Relaxed, Scope::System>("system");
    if constexpr (amo::kHasConstantOperand<Pattern>) {
      add<Primitive::Exchange>("device");
      add<Primitive::Exchange, Order::Relaxed, Scope::System>("system");
      push<Direct<Pattern, Assignment::Blocked, WarpWords<V, true>>>(
          "warp", name_of(Primitive::Add, Order::Relaxed, true));
      push<Direct<Pattern, Assignment::Blocked, WarpWords<V, false>>>(
          "warp", name_of(Primitive::Add, Order::Relaxed, false));
    }
  }

  template <Primitive... kPrimitives>
  void add_gathered() {
    (push<Gathered<V, kPrimitives>>("shared", name_of(kPrimitives, Order::Relaxed, false)), ...);
  }

  template <Primitive kPrimitive>
  void add_orders() {
    add<kPrimitive, Order::Relaxed>("device");
    add<kPrimitive, Order::AcqRel>("device");
    add<kPrimitive, Order::SeqCst>("device");
  }

  // The old values are used, or not, which a chase and a compare-and-swap do not permit.
  template <Primitive kPrimitive, Order kOrder = Order::Relaxed, Scope kScope = Scope::Device,
            Assignment kAssignment = Assignment::Blocked>
  void add(const char* variant) {
    using A = Atomics<kPrimitive, kOrder, kScope>;
    constexpr bool kSwaps = kPrimitive == Primitive::Cas || kPrimitive == Primitive::CasRetry;
    push<Direct<Pattern, kAssignment, Words<A, V, W, true>>>(variant,
                                                             name_of(kPrimitive, kOrder, true));
    if constexpr (!kSwaps && !kChase) {
      push<Direct<Pattern, kAssignment, Words<A, V, W, false>>>(variant,
                                                                name_of(kPrimitive, kOrder, false));
    }
  }

  template <class K>
  void push(const char* variant, const char* template_variant) {
    all_.push_back(
        {{kernel_, variant, name_of_type<V>(), index_, nullptr, nullptr, 0, 0, template_variant},
         start<K>});
  }

  std::vector<DeviceEntry>& all_;
  const char* kernel_;
  const char* index_;
};

template <class Pattern>
void add_words(std::vector<DeviceEntry>& all, const char* kernel, bool indexed) {
  Rows<Pattern, std::uint64_t, std::uint64_t>(all, kernel, indexed ? "int64" : "");
  Rows<Pattern, std::uint32_t, std::uint32_t>(all, kernel, indexed ? "int32" : "");
}
template <class Pattern>
void add_numbers(std::vector<DeviceEntry>& all, const char* kernel, bool indexed) {
  add_words<Pattern>(all, kernel, indexed);
  Rows<Pattern, double, std::uint64_t>(all, kernel, indexed ? "int64" : "");
  Rows<Pattern, float, std::uint32_t>(all, kernel, indexed ? "int32" : "");
}

std::vector<DeviceEntry> table() {
  std::vector<DeviceEntry> all;
  add_numbers<amo::Rand>(all, "amo.rand", true);
  add_numbers<amo::Strided>(all, "amo.stride1", false);
  add_numbers<amo::Strided>(all, "amo.striden", false);
  add_numbers<amo::Central>(all, "amo.central", false);
  add_words<amo::Chase>(all, "amo.ptrchase", true);
  add_words<amo::Scatter>(all, "amo.scatter", true);
  add_words<amo::Gather>(all, "amo.gather", true);
  add_words<amo::ScatterGather>(all, "amo.sg", true);
  return all;
}

const TableRegistrar registrar(table(), kThreads);

}  // namespace
}  // namespace memkern::gpu
