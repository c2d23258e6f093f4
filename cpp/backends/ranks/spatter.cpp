#include <vector>

#include "backends/ranks/gather.hpp"
#include "backends/ranks/table.hpp"
#include "backends/ranks/this_library.hpp"

namespace memkern::ranks {
namespace {

const TableRegistrar registrar([](std::vector<DeviceEntry>& all) {
  add_gathers<ThisLibrary, Single>(all, "single");
});

}  // namespace
}  // namespace memkern::ranks
