#include "families/streaming/case.hpp"

namespace memkern {
namespace {

const FamilyRegistrar registrar("raider", make_streaming);

}  // namespace
}  // namespace memkern
