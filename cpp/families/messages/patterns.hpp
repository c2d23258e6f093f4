// Messages from one rank to another, as templates over the class that transfers them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memkern {

// A rank's end of the messages.
struct MessageEnd {
  int peer = -1;        // the rank at the other end, -1 if it has none
  int pair = -1;        // number of their pair
  bool origin = false;  // whether it starts the messages
};

// Slots and places have the size of a message. Each rank's part of `slots` has one slot more than a
// window has messages, its part of `places` has as many.
struct MessageArgs {
  std::byte* slots = nullptr;     // sent data; the old values of fetch-and-adds
  std::byte* places = nullptr;    // received data
  std::uint64_t* sent = nullptr;  // by rank, messages started so far
  std::int64_t size_B = 0;
  std::int64_t window = 0;  // messages that are started before the first one is complete
  std::int64_t ranks = 0;
  const MessageEnd* ends = nullptr;  // by rank
};

// A carrier C has these functions of a slot of one rank's part and a place of the other's:
//   start_put(slot, place)        from the own slot to the peer's place
//   start_get(slot, place)        from the peer's slot to the own place
//   start_fetch_add(slot, place)  adds 1 to the peer's place, and stores its old value to the slot
//   complete_puts(), complete_gets()  those that were started have taken effect on the peer's
//                                     places, or on the own ones, when it returns
//   get(slot, place)              as start_get, complete when it returns
// and for messages in which the peer takes part
//   start_send(slot), start_receive(place), wait()
//   send(slot), receive(place)    complete when they return
namespace messages {

// Calls fn(slot, place) for the messages from the one with the number `first`. A place never gets
// the contents of the same slot twice in a row, so that a lost message is detected.
template <class Fn>
void for_each(const MessageArgs& args, std::uint64_t first, std::int64_t count, const Fn& fn) {
  const auto window = static_cast<std::uint64_t>(args.window);
  // Divisions take a considerable part of the time of a single message within a node.
  const bool single = window == 1;
  std::uint64_t slot = single ? first % 2 : first % (window + 1);
  std::uint64_t place = single ? 0 : first % window;
  for (std::int64_t k = 0; k < count; ++k) {
    fn(static_cast<std::int64_t>(slot), static_cast<std::int64_t>(place));
    if (++slot > window) slot = 0;
    if (++place == window) place = 0;
  }
}

struct Put {
  static constexpr bool kTwoSided = false;
  template <class C>
  static void run(C& c, const MessageArgs& args, bool, std::uint64_t first, std::int64_t count) {
    for_each(args, first, count, [&](std::int64_t s, std::int64_t p) { c.start_put(s, p); });
    c.complete_puts();
  }
};

struct Get {
  static constexpr bool kTwoSided = false;
  template <class C>
  static void run(C& c, const MessageArgs& args, bool, std::uint64_t first, std::int64_t count) {
    for_each(args, first, count,
             [&](std::int64_t s, std::int64_t p) { count == 1 ? c.get(s, p) : c.start_get(s, p); });
    if (count > 1) c.complete_gets();
  }
};

struct FetchAdd {
  static constexpr bool kTwoSided = false;
  template <class C>
  static void run(C& c, const MessageArgs& args, bool, std::uint64_t first, std::int64_t count) {
    for_each(args, first, count, [&](std::int64_t s, std::int64_t p) { c.start_fetch_add(s, p); });
    c.complete_puts();
  }
};

// A window of messages, and as many back.
struct SendReceive {
  static constexpr bool kTwoSided = true;
  template <class C>
  static void run(C& c, const MessageArgs& args, bool origin, std::uint64_t first,
                  std::int64_t count) {
    const auto send = [&](std::int64_t s, std::int64_t) {
      count == 1 ? c.send(s) : c.start_send(s);
    };
    const auto receive = [&](std::int64_t, std::int64_t p) {
      count == 1 ? c.receive(p) : c.start_receive(p);
    };
    if (origin && count == 1) {
      for_each(args, first, count, send);
      for_each(args, first, count, receive);
    } else if (origin) {
      for_each(args, first, count, receive);
      for_each(args, first, count, send);
      c.wait();
    } else {
      for_each(args, first, count, receive);
      c.wait();
      for_each(args, first, count, send);
      c.wait();
    }
  }
};

}  // namespace messages
}  // namespace memkern
