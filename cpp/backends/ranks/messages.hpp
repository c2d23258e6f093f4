// The carrier of messages between ranks, for any one-sided library, and its entries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/planned.hpp"
#include "backends/ranks/settings.hpp"
#include "engine/device.hpp"
#include "engine/primitive.hpp"
#include "families/messages/patterns.hpp"

namespace memkern::ranks {

// This rank's part in the messages of a range: computing it takes a considerable part of the time
// of a message within a node. The parts of an array are this rank's and the peer's.
template <class L>
class MessagePlan {
 public:
  MessagePlan(const MessageArgs& args, Range range) : args_(args) {
    if (args.ranks != L::ranks()) return;
    end_ = args.ends[L::rank()];
    const std::int64_t first = end_.pair * args.window;
    const std::int64_t last = std::min(range.end, first + args.window);
    if (end_.peer >= 0) count_ = std::max<std::int64_t>(last - std::max(range.begin, first), 0);
    if (count_ == 0) return;
    sent_ = reinterpret_cast<std::uint64_t*>(own(args.sent + L::rank()));
    slots_ = parts_of(args.slots, (args.window + 1) * args.size_B);
    places_ = parts_of(args.places, args.window * args.size_B);
  }
  MessagePlan(const MessagePlan&) = delete;
  MessagePlan& operator=(const MessagePlan&) = delete;
  ~MessagePlan() = default;

  template <class Pattern>
  void run(const Settings& settings) const;

  int peer() const { return end_.peer; }
  std::int64_t bytes() const { return args_.size_B; }
  std::byte* own_slot(std::int64_t slot) const { return slots_.own + slot * bytes(); }
  std::byte* own_place(std::int64_t place) const { return places_.own + place * bytes(); }
  typename L::Place slot_of_peer(std::int64_t slot) const {
    return {&slots_.memory, peer(), slots_.peer_at + slot * bytes()};
  }
  typename L::Place place_of_peer(std::int64_t place) const {
    return {&places_.memory, peer(), places_.peer_at + place * bytes()};
  }

 private:
  struct Parts {
    typename L::Memory memory{};
    std::byte* own = nullptr;
    std::int64_t peer_at = 0;
  };
  static std::byte* own(const void* address) {
    const auto place = arrays<L>().place_of(address);
    return L::own(*place.memory) + place.at;
  }
  Parts parts_of(const std::byte* array, std::int64_t part_B) const {
    const auto peers = arrays<L>().place_of(array + peer() * part_B);
    return {*peers.memory, own(array + L::rank() * part_B), peers.at};
  }

  MessageArgs args_;
  MessageEnd end_;
  std::int64_t count_ = 0;
  std::uint64_t* sent_ = nullptr;
  Parts slots_;
  Parts places_;
};

// In addition to the requirements of `Operations`, an L::Context has
//   start_put(p, from, bytes), start_get(p, to, bytes)
// which are complete after the next `complete`, like started operations on words, and
//   load_bytes(p, to, bytes)
// which is complete when it returns. A library with two-sided messages (L::kTwoSided) has functions
// for this rank's memory and another rank:
//   start_send(to, from, bytes), start_receive(from, to, bytes), wait()
//   send(to, from, bytes), receive(from, to, bytes)
template <class L>
class MessageCarrier {
 public:
  MessageCarrier(const MessagePlan<L>& plan, const typename L::Context& context)
      : plan_(plan), context_(context) {}

  void start_put(std::int64_t slot, std::int64_t place) {
    context_.start_put(plan_.place_of_peer(place), plan_.own_slot(slot), plan_.bytes());
  }
  void start_get(std::int64_t slot, std::int64_t place) {
    context_.start_get(plan_.slot_of_peer(slot), plan_.own_place(place), plan_.bytes());
  }
  void get(std::int64_t slot, std::int64_t place) {
    context_.load_bytes(plan_.slot_of_peer(slot), plan_.own_place(place), plan_.bytes());
  }
  void start_fetch_add(std::int64_t slot, std::int64_t place) {
    static constexpr std::uint64_t kOne = 1;
    auto& old = *reinterpret_cast<std::uint64_t*>(plan_.own_slot(slot));
    context_.template start_fetch<Primitive::Add>(plan_.place_of_peer(place), kOne, old);
  }
  void complete_puts() { context_.complete(plan_.place_of_peer(0)); }
  void complete_gets() { context_.complete(plan_.slot_of_peer(0)); }

  void start_send(std::int64_t slot) {
    L::start_send(plan_.peer(), plan_.own_slot(slot), plan_.bytes());
  }
  void start_receive(std::int64_t place) {
    L::start_receive(plan_.peer(), plan_.own_place(place), plan_.bytes());
  }
  void wait() { L::wait(); }
  void send(std::int64_t slot) { L::send(plan_.peer(), plan_.own_slot(slot), plan_.bytes()); }
  void receive(std::int64_t place) {
    L::receive(plan_.peer(), plan_.own_place(place), plan_.bytes());
  }

 private:
  const MessagePlan<L>& plan_;
  const typename L::Context& context_;
};

template <class L>
template <class Pattern>
void MessagePlan<L>::run(const Settings& settings) const {
  if (count_ == 0 || !(end_.origin || Pattern::kTwoSided)) return;
  const typename L::Context context(settings.private_contexts);
  MessageCarrier<L> carrier(*this, context);
  Pattern::run(carrier, args_, end_.origin, *sent_, count_);
  *sent_ += static_cast<std::uint64_t>(count_);
}

// Iterations are messages: a window of them for each pair.
template <class L, class Pattern>
struct Messages : MessagePlan<L> {
  using Args = MessageArgs;
  using MessagePlan<L>::MessagePlan;
  static const void* key(const Args& args) { return args.slots; }
  void run(const Settings& settings) const { MessagePlan<L>::template run<Pattern>(settings); }
};

template <class L>
void add_messages(std::vector<DeviceEntry>& all) {
  const auto add = [&]<class Pattern>(Pattern, const char* kernel, const char* variant) {
    all.push_back(Planned<Messages<L, Pattern>>::entry(kernel, variant, "uint64", ""));
  };
  add(messages::Put{}, "messages.put", "rma");
  add(messages::Get{}, "messages.get", "rma");
  if constexpr (L::template has<Primitive::Add, std::uint64_t>(true)) {
    add(messages::FetchAdd{}, "messages.fetch_add", "rma");
  }
  if constexpr (L::kTwoSided) add(messages::SendReceive{}, "messages.send", "two-sided");
}

}  // namespace memkern::ranks
