// MPI's one-sided operations with passive targets. One access epoch for all ranks spans the
// lifetime of a window.
#pragma once

// The bindings for C++ were removed from the standard.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/ranks/arrays.hpp"
#include "backends/ranks/library.hpp"
#include "engine/primitive.hpp"

namespace memkern::mpi {

// See ranks::Library.
struct Library {
  static constexpr const char* kName = "mpi";
  static constexpr const char* kStandard = "mpi-3";
  // By the standard's default, accumulate operations of a process on a word are ordered.
  static constexpr bool kOrdered = true;
  static constexpr bool kTwoSided = true;

  struct Memory {
    MPI_Win window;
    std::byte* own;
    // Bytes of each rank's window before the memory, which begins with a page.
    MPI_Aint lead;
  };
  using Place = ranks::Place<Memory>;
  static MPI_Aint displacement(const Place& p) { return p.memory->lead + p.at; }

  template <Primitive primitive, class V>
  static constexpr bool has(bool) {
    constexpr bool kNumbers = primitive == Primitive::Add || primitive == Primitive::Min ||
                              primitive == Primitive::Max || primitive == Primitive::Exchange;
    return kNumbers || (std::is_integral_v<V> && primitive != Primitive::Plain);
  }

  // Sets the communicator whose processes are used; the caller has initialised MPI.
  static void start(MPI_Comm processes);
  // A copy of the communicator.
  static MPI_Comm processes();
  static void finish();
  static std::string version();
  static int rank();
  static int ranks();
  static int ranks_on_node();
  // By rank, the first rank on its node.
  static const std::vector<int>& nodes();
  static bool threads();
  static bool private_contexts() { return false; }

  static MemoryLimit shared_memory();
  static Memory allocate(std::int64_t bytes);
  static void free(const Memory& memory);
  static std::byte* own(const Memory& memory) { return memory.own; }
  static void barrier();
  static double largest(double value);

  static void get(const Place& from, void* to, std::int64_t bytes);
  static void put(const Place& to, const void* from, std::int64_t bytes);

  // Two-sided messages of at most 2^30 bytes. All started messages are complete after wait().
  static void send(int to, const void* from, std::int64_t bytes);
  static void receive(int from, void* to, std::int64_t bytes);
  static void start_send(int to, const void* from, std::int64_t bytes);
  static void start_receive(int from, void* to, std::int64_t bytes);
  static void wait();

  class Context;
};

template <class T>
MPI_Datatype type_of() {
  if constexpr (std::is_same_v<T, std::uint64_t>) return MPI_UINT64_T;
  if constexpr (std::is_same_v<T, std::uint32_t>) return MPI_UINT32_T;
  if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
}

template <Primitive primitive>
MPI_Op operation_of() {
  if constexpr (primitive == Primitive::Add) return MPI_SUM;
  if constexpr (primitive == Primitive::And) return MPI_BAND;
  if constexpr (primitive == Primitive::Or) return MPI_BOR;
  if constexpr (primitive == Primitive::Xor) return MPI_BXOR;
  if constexpr (primitive == Primitive::Min) return MPI_MIN;
  if constexpr (primitive == Primitive::Max) return MPI_MAX;
  if constexpr (primitive == Primitive::Exchange) return MPI_REPLACE;
}

class Library::Context {
 public:
  explicit Context(bool) {}

  template <class T>
  T get(const Place& p) const {
    T value;
    Library::get(p, &value, sizeof value);
    return value;
  }
  template <class T>
  T load(const Place& p) const {
    const T unused{};
    T value;
    MPI_Fetch_and_op(&unused, &value, type_of<T>(), p.rank, displacement(p), MPI_NO_OP,
                     p.memory->window);
    complete(p);
    return value;
  }
  template <Primitive primitive, class T>
  T fetch(const Place& p, T v) const {
    T old;
    start_fetch<primitive>(p, v, old);
    complete(p);
    return old;
  }
  template <class T>
  T swap(const Place& p, T expected, T now) const {
    T old;
    MPI_Compare_and_swap(&now, &expected, &old, type_of<T>(), p.rank, displacement(p),
                         p.memory->window);
    complete(p);
    return old;
  }
  template <Primitive primitive, class T>
  void start_update(const Place& p, const T& v) const {
    MPI_Accumulate(&v, 1, type_of<T>(), p.rank, displacement(p), 1, type_of<T>(),
                   operation_of<primitive>(), p.memory->window);
  }
  template <Primitive primitive, class T>
  void start_fetch(const Place& p, const T& v, T& old) const {
    MPI_Fetch_and_op(&v, &old, type_of<T>(), p.rank, displacement(p), operation_of<primitive>(),
                     p.memory->window);
  }
  // Of at most 2^30 bytes.
  void start_put(const Place& p, const std::byte* from, std::int64_t bytes) const {
    const auto count = static_cast<int>(bytes);
    MPI_Put(from, count, MPI_BYTE, p.rank, displacement(p), count, MPI_BYTE, p.memory->window);
  }
  void start_get(const Place& p, std::byte* to, std::int64_t bytes) const {
    const auto count = static_cast<int>(bytes);
    MPI_Get(to, count, MPI_BYTE, p.rank, displacement(p), count, MPI_BYTE, p.memory->window);
  }
  void load_bytes(const Place& p, std::byte* to, std::int64_t bytes) const {
    start_get(p, to, bytes);
    complete(p);
  }
  void complete(const Place& p) const { MPI_Win_flush(p.rank, p.memory->window); }
  void complete_all(const Memory& memory) const { MPI_Win_flush_all(memory.window); }
};

static_assert(ranks::Library<Library>);

}  // namespace memkern::mpi
