#include "core/load.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/topology.hpp"

namespace memkern {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Fields of /proc/PID/stat behind the command, numbered as in proc(5): the first has number 3.
struct Stat {
  std::string command;
  std::vector<std::string> fields;
  const std::string& field(std::size_t number) const { return fields.at(number - 3); }
};

bool parse_stat(const std::string& text, Stat& stat) {
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');  // a command may have parentheses
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  stat.command = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  stat.fields.clear();
  for (std::string field; rest >> field;) stat.fields.push_back(field);
  constexpr std::size_t kProcessor = 39;
  return stat.fields.size() + 2 >= kProcessor;
}

// Threads that run or wait for a processor at this moment, on the whole machine; -1 if unknown.
int runnable_threads(const fs::path& proc) {
  // "0.20 0.18 0.12 1/80 11206"
  std::istringstream text(text_of(proc / "loadavg"));
  std::string word;
  for (int i = 0; i < 4; ++i) text >> word;
  int runnable = -1;
  return std::sscanf(word.c_str(), "%d/", &runnable) == 1 ? runnable : -1;
}

void add_if_running(const fs::path& file, int process, std::vector<RunningThread>& found) {
  Stat stat;
  if (!parse_stat(text_of(file), stat) || stat.field(3) != "R") return;
  constexpr unsigned long kKernelThread = 0x00200000;  // PF_KTHREAD of the kernel's sched.h
  if ((std::strtoul(stat.field(9).c_str(), nullptr, 10) & kKernelThread) != 0) return;
  found.push_back({process, stat.command, std::atoi(stat.field(39).c_str())});
}

}  // namespace

std::vector<RunningThread> running_threads(const std::string& root) {
  const fs::path proc = root + "/proc";
  std::vector<RunningThread> found;
  if (runnable_threads(proc) == 1) return found;  // the calling thread itself
  const std::string own = std::to_string(getpid());
  std::error_code error;
  for (fs::directory_iterator entry(proc, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!is_number(name) || name == own) continue;
    Stat stat;
    if (!parse_stat(text_of(entry->path() / "stat"), stat)) continue;
    const int process = std::atoi(name.c_str());
    if (stat.field(20) == "1") {
      add_if_running(entry->path() / "stat", process, found);
      continue;
    }
    std::error_code gone;
    for (fs::directory_iterator task(entry->path() / "task", gone); !gone && task != end;
         task.increment(gone)) {
      add_if_running(task->path() / "stat", process, found);
    }
  }
  return found;
}

std::shared_ptr<UnitReservation> UnitReservation::reserve(int unit) {
  // Cases of one process are measured one at a time and may share their units.
  static std::map<int, std::weak_ptr<UnitReservation>> ours;
  if (auto held = ours[unit].lock()) return held;
  // A name in the abstract namespace disappears with the process that holds it.
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "memkern-unit-" + std::to_string(unit);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 &&
      errno == EADDRINUSE) {
    close(fd);
    return nullptr;
  }
  std::shared_ptr<UnitReservation> held(new UnitReservation(fd));
  ours[unit] = held;
  return held;
}

UnitReservation::~UnitReservation() {
  if (socket_ >= 0) close(socket_);
}

ChosenUnits least_busy_units(int workers, const std::vector<RunningThread>& others) {
  const Topology& machine = Topology::instance();
  const std::vector<int>& units = machine.allowed_units();
  std::map<int, int> core;
  std::map<int, int> on_unit;
  std::map<int, int> on_core;
  for (const int unit : units) core[unit] = machine.core_of(unit);
  for (const RunningThread& thread : others) {
    ++on_unit[thread.unit];
    if (core.count(thread.unit) != 0) ++on_core[core[thread.unit]];
  }
  // Among equally busy units, those that are far apart, as the scheduler of an idle system does.
  const int wanted = std::min(workers, static_cast<int>(units.size()));
  std::vector<int> free = machine.spread(wanted);
  for (const int unit : units) {
    if (std::find(free.begin(), free.end(), unit) == free.end()) free.push_back(unit);
  }
  ChosenUnits chosen;
  std::vector<int> reserved_elsewhere;
  const auto less_busy = [&](int a, int b) {
    return std::pair(on_unit[a], on_core[core[a]]) < std::pair(on_unit[b], on_core[core[b]]);
  };
  while (std::cmp_less(chosen.units.size(), wanted)) {
    std::vector<int>& from = free.empty() ? reserved_elsewhere : free;
    const auto best = std::min_element(from.begin(), from.end(), less_busy);
    const int unit = *best;
    from.erase(best);
    if (&from == &free) {
      auto reservation = UnitReservation::reserve(unit);
      if (reservation == nullptr) {
        reserved_elsewhere.push_back(unit);
        continue;
      }
      chosen.reservations.push_back(std::move(reservation));
    } else {
      chosen.reserved_elsewhere.push_back(unit);
    }
    chosen.units.push_back(unit);
    ++on_core[core[unit]];
  }
  // Neighbouring workers on neighbouring units.
  const auto place = [&](int unit) { return std::find(units.begin(), units.end(), unit); };
  std::sort(chosen.units.begin(), chosen.units.end(),
            [&](int a, int b) { return place(a) < place(b); });
  for (int w = wanted; w < workers; ++w) {
    chosen.units.push_back(chosen.units[static_cast<std::size_t>(w % wanted)]);
  }
  return chosen;
}

}  // namespace memkern
