// How the ranks wait for each other.
#pragma once

#include <functional>

namespace memkern::ranks {

// Functions of the caller, called by all ranks in the same order. They throw if another rank has
// failed, was interrupted or does not come, for which the barriers of libraries wait forever.
struct Meeting {
  std::function<void()> barrier = [] {};
  std::function<double(double)> largest = [](double value) { return value; };
};

// That of this process, by default for a single rank.
inline Meeting& meeting() {
  // Never destroyed: the interpreter ends before it.
  static auto* only = new Meeting;
  return *only;
}

}  // namespace memkern::ranks
