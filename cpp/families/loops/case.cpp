#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
constexpr Declaration kDeclared[] = {
#include "families/loops/entries.inc"
};
const FamilyRegistrar registrar("loops", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
