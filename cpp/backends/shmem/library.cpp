#include "backends/shmem/library.hpp"

#include <algorithm>

#include "backends/ranks/meeting.hpp"
#include "core/errors.hpp"

namespace memkern::shmem {
namespace {

struct State {
  int thread_level = SHMEM_THREAD_SINGLE;
  bool started = false;
  int ranks_on_node = 1;
  std::vector<int> nodes;
};
State& state() {
  static State only;
  return only;
}

bool create(shmem_ctx_t& context) { return shmem_ctx_create(SHMEM_CTX_PRIVATE, &context) == 0; }

}  // namespace

void Library::start(bool threads) {
  if (state().started) return;
  state().started = true;
  shmem_init_thread(threads ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE, &state().thread_level);
  // By rank, the first rank on its node; each rank stores its entry on all others.
  auto* nodes = static_cast<int*>(shmem_malloc(static_cast<std::size_t>(ranks()) * sizeof(int)));
  int first = 0;
  while (first != rank() && shmem_ptr(nodes, first) == nullptr) ++first;
  for (int rank = 0; rank < ranks(); ++rank) shmem_int_p(nodes + Library::rank(), first, rank);
  shmem_barrier_all();
  state().nodes.assign(nodes, nodes + ranks());
  state().ranks_on_node =
      static_cast<int>(std::count(state().nodes.begin(), state().nodes.end(), first));
  shmem_free(nodes);
}

void Library::finish() {
  if (state().started) shmem_finalize();
  state().started = false;
}

void Library::abort() { shmem_global_exit(1); }

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
const std::vector<int>& Library::nodes() { return state().nodes; }
bool Library::threads() { return state().thread_level >= SHMEM_THREAD_MULTIPLE; }

bool Library::private_contexts() {
  shmem_ctx_t context = SHMEM_CTX_DEFAULT;
  if (!create(context)) return false;
  shmem_ctx_destroy(context);
  return true;
}

Library::Memory Library::allocate(std::int64_t bytes) {
  // shmem_malloc of Open MPI aligns to 16 bytes.
  auto* own =
      static_cast<std::byte*>(shmem_align(ranks::kAlign_B, static_cast<std::size_t>(bytes)));
  if (largest(own == nullptr ? 1.0 : 0.0) > 0.0) {
    throw MemoryError("OpenSHMEM has no " + std::to_string(bytes) +
                      " bytes of symmetric memory left on each rank: set SHMEM_SYMMETRIC_SIZE to "
                      "more, such as 4G");
  }
  return {own};
}

void Library::free(const Memory& memory) { shmem_free(memory.own); }

void Library::barrier() {
  shmem_quiet();
  ranks::meeting().barrier();
}

double Library::largest(double value) { return ranks::meeting().largest(value); }

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
