// How the ranks wait for each other.
#pragma once

#include <functional>

namespace memkern::ranks {

// Functions of the caller, called by all ranks in the same order. They throw if another rank has
// failed, was interrupted or does not come, for which the barriers of libraries wait forever.
struct Meeting {
  std::function<void()> barrier = [] {};
  std::function<double(double)> largest = [](double value) { return value; };
  // Begins (true) or ends to watch a call of the library in which all ranks wait for each other:
  // ends them if it takes too long. Called by each rank for itself; does not throw.
  std::function<void(bool)> watch = [](bool) {};
};

// That of this process, by default for a single rank.
inline Meeting& meeting() {
  // Never destroyed: the interpreter ends before it.
  static auto* only = new Meeting;
  return *only;
}

// Watches what all ranks call during its lifetime.
class Watched {
 public:
  Watched() { meeting().watch(true); }
  ~Watched() { meeting().watch(false); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

}  // namespace memkern::ranks
