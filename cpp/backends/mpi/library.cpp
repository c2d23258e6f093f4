#include "backends/mpi/library.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "backends/ranks/meeting.hpp"
#include "core/arithmetic.hpp"
#include "core/errors.hpp"

namespace memkern::mpi {
namespace {

constexpr int kTag = 0;

struct State {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;
  int ranks_on_node = 1;
  std::vector<int> nodes;
  std::vector<MPI_Win> windows;
  std::vector<MPI_Request> requests;
};
State& state() {
  static State only;
  return only;
}

void synchronise() {
  for (const MPI_Win window : state().windows) MPI_Win_sync(window);
}

}  // namespace

void Library::start(MPI_Comm processes) {
  if (state().comm != MPI_COMM_NULL) return;
  MPI_Comm_dup(processes, &state().comm);
  MPI_Comm_rank(state().comm, &state().rank);
  MPI_Comm_size(state().comm, &state().ranks);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(state().comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &state().ranks_on_node);
  int first = state().rank;
  MPI_Bcast(&first, 1, MPI_INT, 0, node);
  MPI_Comm_free(&node);
  state().nodes.resize(static_cast<std::size_t>(state().ranks));
  MPI_Allgather(&first, 1, MPI_INT, state().nodes.data(), 1, MPI_INT, state().comm);
}

std::string Library::version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  return {text, static_cast<std::size_t>(length)};
}

MPI_Comm Library::processes() { return state().comm; }
int Library::rank() { return state().rank; }
int Library::ranks() { return state().ranks; }
int Library::ranks_on_node() { return state().ranks_on_node; }
const std::vector<int>& Library::nodes() { return state().nodes; }

bool Library::threads() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level >= MPI_THREAD_MULTIPLE;
}

MemoryLimit Library::shared_memory() {
  const auto named = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  // Windows of Open MPI's other components are in private memory.
  const std::string component = named("OMPI_MCA_osc");
  const bool shared = component.empty() || component == "sm" || component == "rdma";
  if (ranks_on_node() < 2 || !shared) return {std::numeric_limits<std::int64_t>::max(), "nothing"};
  const std::string folder = named(component == "sm" ? "OMPI_MCA_osc_sm_backing_directory"
                                                     : "OMPI_MCA_osc_rdma_backing_directory");
  return shared_memory_limit(folder.empty() ? "/dev/shm" : folder);
}

Library::Memory Library::allocate(std::int64_t bytes) {
  Memory memory{MPI_WIN_NULL, nullptr, 0};
  // MPICH 4.0 computes wrong addresses of other ranks' parts on a node if they are not aligned.
  bytes = round_up(bytes, ranks::kAlign_B) + ranks::kAlign_B;
  MPI_Comm_set_errhandler(state().comm, MPI_ERRORS_RETURN);
  const int failed = MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, state().comm,
                                      static_cast<void*>(&memory.own), &memory.window);
  MPI_Comm_set_errhandler(state().comm, MPI_ERRORS_ARE_FATAL);
  if (failed != MPI_SUCCESS) {
    throw MemoryError("MPI refused windows of " + std::to_string(bytes) + " bytes");
  }
  MPI_Win_lock_all(MPI_MODE_NOCHECK, memory.window);
  state().windows.push_back(memory.window);
  // In Open MPI 4.1, windows begin 8 bytes after a page. A lead that differs between ranks would
  // have to be known for each of them.
  const auto lead =
      static_cast<double>(-reinterpret_cast<std::uintptr_t>(memory.own) % ranks::kAlign_B);
  if (largest(lead) == -largest(-lead)) memory.lead = static_cast<MPI_Aint>(lead);
  memory.own += memory.lead;
  return memory;
}

void Library::free(const Memory& memory) {
  MPI_Win window = memory.window;
  std::erase(state().windows, window);
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

void Library::finish() {
  while (!state().windows.empty()) free({state().windows.back(), nullptr, 0});
}

void Library::barrier() {
  synchronise();
  ranks::meeting().barrier();
  synchronise();
}

double Library::largest(double value) { return ranks::meeting().largest(value); }

void Library::get(const Place& from, void* to, std::int64_t bytes) {
  // A count is an int.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  for (std::int64_t done = 0; done < bytes; done += kMost) {
    const auto count = static_cast<int>(std::min(kMost, bytes - done));
    MPI_Get(static_cast<std::byte*>(to) + done, count, MPI_BYTE, from.rank,
            displacement(from) + done, count, MPI_BYTE, from.memory->window);
  }
  MPI_Win_flush(from.rank, from.memory->window);
}

void Library::put(const Place& to, const void* from, std::int64_t bytes) {
  const auto count = static_cast<int>(bytes);
  MPI_Put(from, count, MPI_BYTE, to.rank, displacement(to), count, MPI_BYTE, to.memory->window);
  MPI_Win_flush(to.rank, to.memory->window);
}

void Library::send(int to, const void* from, std::int64_t bytes) {
  MPI_Send(from, static_cast<int>(bytes), MPI_BYTE, to, kTag, state().comm);
}

void Library::receive(int from, void* to, std::int64_t bytes) {
  MPI_Recv(to, static_cast<int>(bytes), MPI_BYTE, from, kTag, state().comm, MPI_STATUS_IGNORE);
}

void Library::start_send(int to, const void* from, std::int64_t bytes) {
  MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, to, kTag, state().comm,
            &state().requests.emplace_back());
}

void Library::start_receive(int from, void* to, std::int64_t bytes) {
  MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, kTag, state().comm,
            &state().requests.emplace_back());
}

void Library::wait() {
  MPI_Waitall(static_cast<int>(state().requests.size()), state().requests.data(),
              MPI_STATUSES_IGNORE);
  state().requests.clear();
}

}  // namespace memkern::mpi
