#include "backends/ranks/messages.hpp"

#include "backends/ranks/table.hpp"
#include "backends/ranks/this_library.hpp"

namespace memkern::ranks {
namespace {

const TableRegistrar registrar(add_messages<ThisLibrary>);

}  // namespace
}  // namespace memkern::ranks
