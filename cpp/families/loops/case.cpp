#include "families/streaming/case.hpp"

namespace memkern {
namespace {

const FamilyRegistrar registrar("loops", make_streaming);

}  // namespace
}  // namespace memkern
