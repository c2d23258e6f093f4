// The library for which a family's file is compiled: the build defines its namespace and header.
#pragma once

#include MEMKERN_LIBRARY_HEADER

namespace memkern::ranks {

using ThisLibrary = MEMKERN_LIBRARY::Library;

}  // namespace memkern::ranks
