// What else runs on this machine, and which processing units are left for us.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace memkern {

// A thread of another process that runs or waits for a processor.
struct RunningThread {
  int process;
  std::string command;
  int unit;  // the processing unit that it is on
};

// Those that this process may see, without the kernel's own threads, which run for microseconds.
// Takes microseconds where nothing else runs, else some for every thread on the machine. `root` is
// where /proc is.
std::vector<RunningThread> running_threads(const std::string& root = "");

// A processing unit that is ours as far as other memkern processes are concerned, for as long as
// this lives. Null where another process has it.
class UnitReservation {
 public:
  static std::shared_ptr<UnitReservation> reserve(int unit);
  ~UnitReservation();
  UnitReservation(const UnitReservation&) = delete;
  UnitReservation& operator=(const UnitReservation&) = delete;

 private:
  explicit UnitReservation(int socket) : socket_(socket) {}
  int socket_;
};

// A unit for each worker: those on which least runs, no unit and, while there are others, no core
// twice, none that another memkern process has reserved while there are others. `busy` holds the
// units of other running threads. More workers than units take turns.
struct ChosenUnits {
  std::vector<int> units;
  std::vector<std::shared_ptr<UnitReservation>> reservations;
};
ChosenUnits least_busy_units(int workers, const std::vector<RunningThread>& others);

}  // namespace memkern
