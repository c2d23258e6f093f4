#include "backends/ranks/table.hpp"
#include "backends/ranks/this_library.hpp"
#include "backends/ranks/words.hpp"

namespace memkern::ranks {
namespace {

const TableRegistrar registrar(add_atomics<ThisLibrary>);

}  // namespace
}  // namespace memkern::ranks
