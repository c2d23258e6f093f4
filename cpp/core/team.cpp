#include "core/team.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/errors.hpp"
#include "core/limits.hpp"
#include "core/load.hpp"
#include "core/refusal.hpp"
#include "core/topology.hpp"

namespace memkern {
namespace {

constexpr int kMaxThreadsPerUnit = 8;

// The OpenMP threads of the calling thread, which has a pool of its own.
int& pool_size() {
  thread_local int size = 1;
  return size;
}

// Starts and ends threads. Returns how many of `wanted` there were at the same time, and which
// limit refuses the next one.
std::pair<int, std::string> startable(int wanted) {
  std::mutex until_all_run;
  std::vector<std::thread> threads;
  std::string limit;
  std::unique_lock hold(until_all_run);
  try {
    while (std::cmp_less(threads.size(), wanted)) {
      threads.emplace_back([&] { const std::scoped_lock wait(until_all_run); });
    }
  } catch (const std::system_error&) {
    limit = thread_limit();  // while they are there
  }
  hold.unlock();
  for (std::thread& thread : threads) thread.join();
  return {static_cast<int>(threads.size()), limit};
}

// The processors on which the calling thread may run; none if unknown.
Mask binding() {
  Mask mask{};
  if (sched_getaffinity(0, sizeof mask, mask.data()) != 0) return {};
  return mask;
}

bool bind_this_thread(const Mask& mask) {
  return sched_setaffinity(0, sizeof mask, mask.data()) == 0;
}

bool equal(const Mask& a, const Mask& b) { return CPU_EQUAL_S(sizeof a, a.data(), b.data()) != 0; }

Mask only(int processor) {
  Mask mask{};
  CPU_SET_S(static_cast<std::size_t>(processor), sizeof mask, mask.data());
  return mask;
}

// The binding of unpinned workers: all units that the process may use.
Mask every_unit() {
  Mask mask{};
  for (const int unit : Topology::of_this_machine().allowed_units()) {
    CPU_SET_S(static_cast<std::size_t>(unit), sizeof mask, mask.data());
  }
  return mask;
}

// Sessions of the calling thread.
int& sessions() {
  static thread_local int count = 0;
  return count;
}

int parse_unit(const std::string& text, const std::string& whole) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || text.empty()) {
    throw InputError("pin '" + whole +
                     "' is not auto, none, compact, spread or a list of units such as 0,2,4-7");
  }
  return value;
}

std::vector<int> parse_list(const std::string& text) {
  const std::vector<int>& allowed = Topology::instance().allowed_units();
  std::vector<int> units;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string part = text.substr(start, comma - start);
    const std::size_t dash = part.find('-');
    const int first = parse_unit(part.substr(0, dash), text);
    const int last = dash == std::string::npos ? first : parse_unit(part.substr(dash + 1), text);
    if (last < first || last - first > 65535) {
      throw InputError("pin '" + text + "' has a range that descends or is too long: " + part);
    }
    for (int u = first; u <= last; ++u) {
      if (std::find(allowed.begin(), allowed.end(), u) == allowed.end()) {
        throw InputError("pin names processing unit " + std::to_string(u) +
                         ", which this process may not use or the machine does not have");
      }
      if (std::find(units.begin(), units.end(), u) != units.end()) {
        throw InputError("pin names processing unit " + std::to_string(u) +
                         " twice: workers on one unit would wait for each other");
      }
      units.push_back(u);
    }
    start = comma + 1;
  }
  return units;
}

// Key of the current binding of the OpenMP workers. The binding outlives a Session, so that a
// sequence of samples does not bind them again each time. Every calling thread has its own workers.
std::string& applied_key() {
  thread_local std::string key;
  return key;
}

}  // namespace

Team::Team(const TeamRequest& request) {
  if (sessions() == 0) Topology::read_units();
  const Topology& machine = Topology::instance();
  const int available = static_cast<int>(machine.allowed_units().size());
  std::vector<int> list;
  const bool named = request.pin == "auto" || request.pin == "none" || request.pin == "compact" ||
                     request.pin == "spread";
  if (!named) list = parse_list(request.pin);

  const int fallback = list.empty() ? available : static_cast<int>(list.size());
  size_ = request.threads == 0 ? fallback : request.threads;
  if (size_ < 1 || size_ > available * kMaxThreadsPerUnit) {
    throw InputError("threads must lie between 1 and " +
                     std::to_string(available * kMaxThreadsPerUnit) + " on this machine, not " +
                     std::to_string(size_));
  }
  if (request.pin == "auto") {
    ChosenUnits chosen = least_busy_units(size_, running_threads());
    units_ = std::move(chosen.units);
    shared_units_ = std::move(chosen.reserved_elsewhere);
    reservations_ = std::move(chosen.reservations);
  }
  if (request.pin == "compact") units_ = machine.compact(size_);
  if (request.pin == "spread") units_ = machine.spread(size_);
  if (!named) {
    if (std::cmp_less(list.size(), size_)) {
      throw InputError("pin lists " + std::to_string(list.size()) + " processing units for " +
                       std::to_string(size_) + " threads: list one for each");
    }
    units_.assign(list.begin(), list.begin() + size_);
  }

  memory_key_ = binding_key_ = std::to_string(size_);
  for (const int u : units_) {
    processors_.push_back(machine.processor_of(u));
    binding_key_ += "," + std::to_string(processors_.back());
  }
  if (units_.empty()) {
    for (const int u : Topology::of_this_machine().allowed_units()) {
      binding_key_ += "/" + std::to_string(u);
    }
  }
  if (machine.numa_nodes().size() > 1) memory_key_ = binding_key_;

  // An OpenMP runtime that fails to create a thread ends the process.
  if (const int missing = size_ - pool_size(); missing > 0) {
    const auto [found, limit] = startable(missing);
    if (found < missing) {
      throw InputError("only " + std::to_string(size_ - missing + found) + " of " +
                       std::to_string(size_) + " threads can be started, since " + limit +
                       ": raise this limit, or request fewer threads");
    }
  }
  omp_set_dynamic(0);
  int started = 0;
  std::atomic<bool> bound = false;
  for (int tries = 0; tries < 2 && !bound; ++tries) {
    // Others may have bound the workers elsewhere since they were bound with this key.
    if (tries > 0) applied_key().clear();
    bound = true;
    const Session session(*this);
#pragma omp parallel num_threads(size_)
    {
#pragma omp single
      started = omp_get_num_threads();
      const auto worker = static_cast<std::size_t>(omp_get_thread_num());
      if (!units_.empty() && !equal(binding(), only(processors_[worker]))) bound = false;
    }
  }
  if (started != size_) {
    throw InputError("only " + std::to_string(started) + " of " + std::to_string(size_) +
                     " threads were granted: raise OMP_THREAD_LIMIT or request fewer");
  }
  pool_size() = size_;
  if (!bound) {
    Mask own{};
    std::string why = "a processing unit is no longer available to this process";
    if (sched_getaffinity(0, sizeof own, own.data()) != 0) {
      why = refused("sched_getaffinity", errno, "");
    } else if (!bind_this_thread(only(processors_[0]))) {
      why = refused("sched_setaffinity", errno, "");
    } else {
      bind_this_thread(own);
    }
    if (request.pin != "auto") {
      throw InputError("pin '" + request.pin + "' was refused: " + why);
    }
    pin_refused_ = why;
    units_.clear();
    processors_.clear();
    shared_units_.clear();
    reservations_.clear();
    binding_key_ = memory_key_ = std::to_string(size_);
    applied_key().clear();
  }
  if (units_.empty()) return;
  pin_obtained_.clear();
  for (const int u : units_) {
    pin_obtained_ += (pin_obtained_.empty() ? "" : ",") + std::to_string(u);
  }
}

Team::Session::Session(const Team& team) {
  ++sessions();
  // Threads of an unpinned team may still be bound by an earlier one.
  if (applied_key() != team.binding_key_) {
    const Mask all = every_unit();
#pragma omp parallel num_threads(team.size_)
    {
      const auto worker = static_cast<std::size_t>(omp_get_thread_num());
      if (worker != 0) bind_this_thread(team.bound() ? only(team.processors_[worker]) : all);
    }
    applied_key() = team.binding_key_;
  }
  // The calling thread is bound and released around every sample.
  if (!team.bound()) return;
  own_ = binding();
  target_ = only(team.processors_[0]);
  rebound_ = !equal(own_, target_) && bind_this_thread(target_);
}

Team::Session::~Session() {
  --sessions();
  if (!rebound_) return;
  const Mask now = binding();
  Mask left = own_;
  if (!equal(now, target_)) CPU_AND_S(sizeof left, left.data(), own_.data(), now.data());
  if (CPU_COUNT_S(sizeof left, left.data()) > 0) bind_this_thread(left);
}

}  // namespace memkern
