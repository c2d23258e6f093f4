#include "backends/ranks/indexed.hpp"
#include "backends/ranks/table.hpp"
#include "backends/ranks/this_library.hpp"

namespace memkern::ranks {
namespace {

const TableRegistrar registrar([](std::vector<DeviceEntry>& all) {
  add_indexed<ThisLibrary, Single>(all, "single");
});

}  // namespace
}  // namespace memkern::ranks
