// Running threads of other processes, and the least busy processing units.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace memkern {

// A thread of another process that runs or waits for a processor.
struct RunningThread {
  int process;
  std::string command;
  int unit;  // processing unit, index of the operating system
};

// All such threads that this process can see, without kernel threads, which run for microseconds.
// Takes microseconds if nothing else runs, else some microseconds per thread of the machine. `root`
// is prepended to /proc, for tests.
std::vector<RunningThread> running_threads(const std::string& root = "");

// Reserves a processing unit for this process, among all memkern processes, during its lifetime.
class UnitReservation {
 public:
  // Null if another process holds the unit. On systems without abstract sockets, other processes
  // are unknown and every unit can be reserved.
  static std::shared_ptr<UnitReservation> reserve(int unit);
  ~UnitReservation();
  UnitReservation(const UnitReservation&) = delete;
  UnitReservation& operator=(const UnitReservation&) = delete;

 private:
  explicit UnitReservation(int socket) : socket_(socket) {}
  int socket_;
};

struct ChosenUnits {
  std::vector<int> units;
  // The units that another memkern process has reserved.
  std::vector<int> reserved_elsewhere;
  std::vector<std::shared_ptr<UnitReservation>> reservations;
};
// One unit per worker, first those with the fewest running threads of `others`. As long as
// possible, avoids units of a used core and units that another memkern process has reserved.
// Workers share units only if there are more workers than units.
ChosenUnits least_busy_units(int workers, const std::vector<RunningThread>& others);

}  // namespace memkern
