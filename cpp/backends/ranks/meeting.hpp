// Synchronisation of the ranks.
#pragma once

#include <functional>

namespace memkern::ranks {

// Functions of the caller, called by all ranks in the same order. They throw if another rank has
// failed, was interrupted or does not arrive; the barriers of libraries would wait forever.
struct Meeting {
  std::function<void()> barrier = [] {};
  std::function<double(double)> largest = [](double value) { return value; };
  // Begins (true) or ends watching a library call in which all ranks wait for each other; if it
  // takes too long, all ranks are ended. Each rank calls it independently; does not throw.
  std::function<void(bool)> watch = [](bool) {};
};

// The synchronisation of this process, by default for a single rank.
inline Meeting& meeting() {
  // Never destroyed: the interpreter ends before it.
  static auto* only = new Meeting;
  return *only;
}

// Watches a collective call during its lifetime.
class Watched {
 public:
  Watched() { meeting().watch(true); }
  ~Watched() { meeting().watch(false); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

}  // namespace memkern::ranks
