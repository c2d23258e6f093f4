#include "families/streaming/case.hpp"

namespace memkern {
namespace {

const FamilyRegistrar registrar("launch", make_streaming);

}  // namespace
}  // namespace memkern
