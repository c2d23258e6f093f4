#include "backends/shmem/interface.hpp"

#include "backends/ranks/device.hpp"
#include "backends/shmem/library.hpp"

namespace memkern::shmem {

ranks::Interface interface() { return ranks::interface_of<Library>(); }

void start(bool threads) { Library::start(threads); }
void abort() { Library::abort(); }

}  // namespace memkern::shmem
