// What the Python module of OpenSHMEM needs besides meetings, without the library's types.
#pragma once

#include "backends/ranks/interface.hpp"

namespace memkern::shmem {

ranks::Interface interface();
// Initialises the library, for one thread or several, unless it is already.
void start(bool threads);
void abort();

}  // namespace memkern::shmem
