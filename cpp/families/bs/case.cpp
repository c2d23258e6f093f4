#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
constexpr Declaration kDeclared[] = {
#include "families/bs/entries.inc"
    // xl: local nodes of a mesh, xg: its unique nodes.
    {"bs.bs6", "xg:w xl:r", 0, ""},
    {"bs.bs7", "xl:w xg:r", 0, ""},
    {"bs.bs8", "xl:u", 0, ""},
};
const DeclarationRegistrar declared(kDeclared, std::size(kDeclared));
const FamilyRegistrar registrar("bs", make_streaming);

}  // namespace
}  // namespace memkern
