#include "backends/shmem/interface.hpp"

#include "backends/ranks/device.hpp"
#include "backends/shmem/library.hpp"

namespace memkern::shmem {

const ranks::Interface& interface() {
  static const ranks::Interface only = ranks::interface_of<Library>();
  return only;
}

void start(bool threads) { Library::start(threads); }
void abort() { Library::abort(); }

}  // namespace memkern::shmem
