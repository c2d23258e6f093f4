#include "families/streaming/case.hpp"

namespace memkern {
namespace {

const FamilyRegistrar registrar("bs", make_streaming);

}  // namespace
}  // namespace memkern
