// OpenSHMEM's atomic operations on symmetric memory.
#pragma once

#include <shmem.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/library.hpp"
#include "engine/primitive.hpp"

namespace memkern::shmem {

// See ranks::Library.
struct Library {
  static constexpr const char* kName = "shmem";
  static constexpr const char* kStandard = "openshmem-1.4";
  // An update without a result may take effect after a later operation of its worker.
  static constexpr bool kOrdered = false;
  static constexpr bool kTwoSided = false;

  struct Memory {
    std::byte* own;
  };
  using Place = ranks::Place<Memory>;

  template <Primitive primitive, class V>
  static constexpr bool has([[maybe_unused]] bool fetched) {
    constexpr bool kSwaps = primitive == Primitive::Cas || primitive == Primitive::CasRetry;
    constexpr bool kBits =
        primitive == Primitive::And || primitive == Primitive::Or || primitive == Primitive::Xor;
#if defined(OSHMEM_MAJOR_VERSION) && OSHMEM_MAJOR_VERSION < 5
    // Errors in Open MPI 4.1: fetch_and, fetch_or and fetch_xor use a wrong operand, and a
    // compare-and-swap writes 8 bytes to a variable of sizeof(V) on its stack.
    if ((kBits && fetched) || (kSwaps && sizeof(V) == 4)) return false;
#elif defined(OSHMEM_MAJOR_VERSION)
    // Open MPI 5 with UCX sets a word by an operation that UCX does not have on a node.
    if (primitive == Primitive::Exchange && !fetched) return false;
#endif
    return primitive == Primitive::Exchange ||
           (std::is_integral_v<V> && (kSwaps || kBits || primitive == Primitive::Add));
  }

  // Initialises the library, for one thread or several, unless it is initialised.
  static void start(bool threads);
  static void finish();
  // Ends all processes.
  static void abort();
  static std::string version();
  static int rank();
  static int ranks();
  static int ranks_on_node();
  // By rank, the first rank on its node.
  static const std::vector<int>& nodes();
  static bool threads();
  static bool private_contexts();

  // The symmetric heap is in other memory, and allocate() refuses what exceeds it.
  static MemoryLimit shared_memory() {
    return {std::numeric_limits<std::int64_t>::max(), "nothing"};
  }
  static Memory allocate(std::int64_t bytes);
  static void free(const Memory& memory);
  static std::byte* own(const Memory& memory) { return memory.own; }
  static void barrier();
  static double largest(double value);

  static void get(const Place& from, void* to, std::int64_t bytes);
  static void put(const Place& to, const void* from, std::int64_t bytes);

  class Context;
};

// The functions of the standard for a type, by overloads.
#define MEMKERN_FETCH(P, T, type, operation)                                               \
  template <Primitive primitive>                                                           \
  requires(primitive == Primitive::P) T fetch(shmem_ctx_t context, T* at, T v, int rank) { \
    return shmem_ctx_##type##_atomic_##operation(context, at, v, rank);                    \
  }
#define MEMKERN_UPDATE(P, T, type, operation)                                                  \
  template <Primitive primitive>                                                               \
  requires(primitive == Primitive::P) void update(shmem_ctx_t context, T* at, T v, int rank) { \
    shmem_ctx_##type##_atomic_##operation(context, at, v, rank);                               \
  }
#define MEMKERN_EXCHANGES(T, type)                 \
  static_assert(sizeof(T) == 4 || sizeof(T) == 8); \
  MEMKERN_FETCH(Exchange, T, type, swap)           \
  MEMKERN_UPDATE(Exchange, T, type, set)
#define MEMKERN_OPERATIONS(T, type)                                                  \
  MEMKERN_EXCHANGES(T, type)                                                         \
  MEMKERN_FETCH(Add, T, type, fetch_add)                                             \
  MEMKERN_FETCH(And, T, type, fetch_and)                                             \
  MEMKERN_FETCH(Or, T, type, fetch_or)                                               \
  MEMKERN_FETCH(Xor, T, type, fetch_xor)                                             \
  MEMKERN_UPDATE(Add, T, type, add)                                                  \
  MEMKERN_UPDATE(And, T, type, and)                                                  \
  MEMKERN_UPDATE(Or, T, type, or)                                                    \
  MEMKERN_UPDATE(Xor, T, type, xor)                                                  \
  inline T get(shmem_ctx_t context, const T* at, int rank) {                         \
    return shmem_ctx_##type##_g(context, at, rank);                                  \
  }                                                                                  \
  inline T load(shmem_ctx_t context, const T* at, int rank) {                        \
    return shmem_ctx_##type##_atomic_fetch(context, at, rank);                       \
  }                                                                                  \
  inline T swap(shmem_ctx_t context, T* at, T expected, T now, int rank) {           \
    return shmem_ctx_##type##_atomic_compare_swap(context, at, expected, now, rank); \
  }
MEMKERN_OPERATIONS(unsigned int, uint)
MEMKERN_OPERATIONS(unsigned long, ulong)
MEMKERN_EXCHANGES(float, float)
MEMKERN_EXCHANGES(double, double)
#undef MEMKERN_OPERATIONS
#undef MEMKERN_EXCHANGES
#undef MEMKERN_UPDATE
#undef MEMKERN_FETCH

class Library::Context {
 public:
  explicit Context(bool is_private)
      : handle_(is_private ? own() : std::bit_cast<Handle>(SHMEM_CTX_DEFAULT)) {}

  template <class T>
  T get(const Place& p) const {
    return shmem::get(context(), word<T>(p), p.rank);
  }
  template <class T>
  T load(const Place& p) const {
    return shmem::load(context(), word<T>(p), p.rank);
  }
  template <Primitive primitive, class T>
  T fetch(const Place& p, T v) const {
    return shmem::fetch<primitive>(context(), word<T>(p), v, p.rank);
  }
  template <class T>
  T swap(const Place& p, T expected, T now) const {
    return shmem::swap(context(), word<T>(p), expected, now, p.rank);
  }
  template <Primitive primitive, class T>
  void start_update(const Place& p, const T& v) const {
    shmem::update<primitive>(context(), word<T>(p), v, p.rank);
    pending_ = true;
  }
  template <Primitive primitive, class T>
  void start_fetch(const Place& p, const T& v, T& old) const {
    old = fetch<primitive>(p, v);
  }
  void start_put(const Place& p, const std::byte* from, std::int64_t bytes) const {
    shmem_ctx_putmem_nbi(context(), p.memory->own + p.at, from, static_cast<std::size_t>(bytes),
                         p.rank);
    pending_ = true;
  }
  void start_get(const Place& p, std::byte* to, std::int64_t bytes) const {
    shmem_ctx_getmem_nbi(context(), to, p.memory->own + p.at, static_cast<std::size_t>(bytes),
                         p.rank);
    pending_ = true;
  }
  void load_bytes(const Place& p, std::byte* to, std::int64_t bytes) const {
    shmem_ctx_getmem(context(), to, p.memory->own + p.at, static_cast<std::size_t>(bytes), p.rank);
  }
  // Operations that return a value are already complete.
  void complete() const {
    if (pending_) shmem_ctx_quiet(context());
    pending_ = false;
  }
  void complete(const Place&) const { complete(); }
  void complete_all(const Memory&) const { complete(); }

 private:
  // The library's own type of contexts may have no linkage.
  using Handle = std::array<std::byte, sizeof(shmem_ctx_t)>;

  // The private context of this thread.
  static Handle own();
  shmem_ctx_t context() const { return std::bit_cast<shmem_ctx_t>(handle_); }

  template <class T>
  static T* word(const Place& p) {
    return reinterpret_cast<T*>(p.memory->own + p.at);
  }

  Handle handle_;
  mutable bool pending_ = false;
};

static_assert(ranks::Library<Library>);

}  // namespace memkern::shmem
