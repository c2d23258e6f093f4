// Interface of a library of one-sided operations.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/limits.hpp"
#include "engine/primitive.hpp"

namespace memkern::ranks {

// Memory of each rank begins with a page: copies of some KiB are half as fast if it begins 8 or 16
// bytes later, as it does in libraries.
constexpr std::int64_t kAlign_B = 4096;

// The operations of one worker. Started operations are complete, and `value` and `old` can be
// reused, after the next `complete` for their rank or `complete_all`; the others are complete when
// they return.
template <class C, class Memory, class Place>
concept OperationsOfWorker = requires(C context, const Memory& memory, const Place& place,
                                      const std::uint64_t& value, std::uint64_t& old) {
  // Whether no other thread may use the context.
  C(true);
  // A plain and an atomic load.
  { context.template get<std::uint64_t>(place) } -> std::same_as<std::uint64_t>;
  { context.template load<std::uint64_t>(place) } -> std::same_as<std::uint64_t>;
  // Combines a value with the word by a primitive, and returns the old value.
  { context.template fetch<Primitive::Add>(place, value) } -> std::same_as<std::uint64_t>;
  // Stores the last value if the word is the first one; returns the old value.
  { context.swap(place, value, value) } -> std::same_as<std::uint64_t>;
  // Same as fetch, without and with the old value.
  context.template start_update<Primitive::Add>(place, value);
  context.template start_fetch<Primitive::Add>(place, value, old);
  context.complete(place);
  context.complete_all(memory);
};

template <class L>
concept Library = requires(const typename L::Memory& memory, const typename L::Place& place,
                           void* to, const void* from, std::int64_t bytes, double value) {
  requires OperationsOfWorker<typename L::Context, typename L::Memory, typename L::Place>;
  { L::kName } -> std::convertible_to<std::string>;
  // The standard and its version, in place of an instruction set.
  { L::kStandard } -> std::convertible_to<std::string>;
  // Whether a worker's operations on a word take effect in the order of their start.
  { L::kOrdered } -> std::convertible_to<bool>;
  // Whether it has a primitive for a type; with `true`, one that returns the old value.
  { L::template has<Primitive::Add, std::uint64_t>(true) } -> std::same_as<bool>;

  // Name and version; may be called before the library is started.
  { L::version() } -> std::same_as<std::string>;
  { L::rank() } -> std::same_as<int>;
  { L::ranks() } -> std::same_as<int>;
  { L::ranks_on_node() } -> std::same_as<int>;
  // Whether several threads may call the library at the same time.
  { L::threads() } -> std::same_as<bool>;
  // Whether a thread can have a context that no other thread uses.
  { L::private_contexts() } -> std::same_as<bool>;

  // Where the library keeps the memory that ranks on a node share, and its free bytes; unlimited if
  // there is no such limit.
  { L::shared_memory() } -> std::same_as<MemoryLimit>;

  // All ranks together:
  // Uninitialised; throws MemoryError.
  { L::allocate(bytes) } -> std::same_as<typename L::Memory>;
  L::free(memory);
  // Waits for all ranks (see meeting.hpp). Then stores of ranks to their own parts are visible to
  // all.
  L::barrier();
  { L::largest(value) } -> std::same_as<double>;
  // To be called at the end.
  L::finish();

  // This rank's part.
  { L::own(memory) } -> std::same_as<std::byte*>;
  // Complete when they return.
  L::get(place, to, bytes);
  L::put(place, from, bytes);
};

}  // namespace memkern::ranks
