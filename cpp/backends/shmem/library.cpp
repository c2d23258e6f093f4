#include "backends/shmem/library.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace memkern::shmem {
namespace {

struct State {
  int thread_level = SHMEM_THREAD_SINGLE;
  bool started = false;
  int ranks_on_node = 1;
  // Symmetric variables of the reduction: the values, and what the library needs.
  double* value_of_rank = nullptr;
  double* value_of_all = nullptr;
  double* work = nullptr;
  long* reduction_state = nullptr;
};
State& state() {
  static State only;
  return only;
}

template <class T>
T* symmetric(std::size_t count) {
  return static_cast<T*>(shmem_malloc(count * sizeof(T)));
}

bool create(shmem_ctx_t& context) { return shmem_ctx_create(SHMEM_CTX_PRIVATE, &context) == 0; }

}  // namespace

void Library::start(bool threads) {
  if (state().started) return;
  state().started = true;
  shmem_init_thread(threads ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE, &state().thread_level);
  state().value_of_rank = symmetric<double>(1);
  state().value_of_all = symmetric<double>(1);
  state().work = symmetric<double>(SHMEM_REDUCE_MIN_WRKDATA_SIZE);
  state().reduction_state = symmetric<long>(SHMEM_REDUCE_SYNC_SIZE);
  std::fill_n(state().reduction_state, SHMEM_REDUCE_SYNC_SIZE, SHMEM_SYNC_VALUE);
  shmem_barrier_all();
  state().ranks_on_node = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == Library::rank() || shmem_ptr(state().value_of_rank, rank) != nullptr)
      ++state().ranks_on_node;
  }
}

void Library::finish() {
  if (state().started) shmem_finalize();
  state().started = false;
}

std::string Library::version() {
  char name[SHMEM_MAX_NAME_LEN] = "";
  int major = 0;
  int minor = 0;
  shmem_info_get_name(name);
  shmem_info_get_version(&major, &minor);
  return "OpenSHMEM " + std::to_string(major) + "." + std::to_string(minor) + " of " + name;
}

int Library::rank() {
  static const int number = shmem_my_pe();
  return number;
}
int Library::ranks() {
  static const int number = shmem_n_pes();
  return number;
}
int Library::ranks_on_node() { return state().ranks_on_node; }
bool Library::threads() { return state().thread_level >= SHMEM_THREAD_MULTIPLE; }

bool Library::private_contexts() {
  shmem_ctx_t context = SHMEM_CTX_DEFAULT;
  if (!create(context)) return false;
  shmem_ctx_destroy(context);
  return true;
}

Library::Memory Library::allocate(std::int64_t bytes) {
  auto* own = symmetric<std::byte>(static_cast<std::size_t>(bytes));
  if (largest(own == nullptr ? 1.0 : 0.0) > 0.0) {
    throw MemoryError("OpenSHMEM has no " + std::to_string(bytes) +
                      " bytes of symmetric memory left on each rank: set SHMEM_SYMMETRIC_SIZE to "
                      "more, such as 4G");
  }
  return {own};
}

void Library::free(const Memory& memory) { shmem_free(memory.own); }

void Library::barrier() { shmem_barrier_all(); }

double Library::largest(double value) {
  // A process that has not started is alone.
  if (state().value_of_rank == nullptr) return value;
  *state().value_of_rank = value;
  shmem_barrier_all();
  shmem_double_max_to_all(state().value_of_all, state().value_of_rank, 1, 0, 0, ranks(),
                          state().work, state().reduction_state);
  return *state().value_of_all;
}

void Library::get(const Place& from, void* to, std::int64_t bytes) {
  shmem_getmem(to, from.memory->own + from.at, static_cast<std::size_t>(bytes), from.rank);
}

void Library::put(const Place& to, const void* from, std::int64_t bytes) {
  shmem_putmem(to.memory->own + to.at, from, static_cast<std::size_t>(bytes), to.rank);
  shmem_quiet();
}

Library::Context::Handle Library::Context::own() {
  static thread_local const Handle handle = [] {
    shmem_ctx_t context = SHMEM_CTX_DEFAULT;
    create(context);
    return std::bit_cast<Handle>(context);
  }();
  return handle;
}

}  // namespace memkern::shmem
