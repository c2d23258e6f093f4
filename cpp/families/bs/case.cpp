#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
constexpr DeclaredInteger kNodes[] = {{"local_nodes", 1}, {"global_nodes", 1}};
constexpr Declaration kDeclared[] = {
#include "families/bs/entries.inc"
    {"bs.bs0", "", 0, ""},
    // xl: local nodes of a mesh, xg: its unique nodes.
    {"bs.bs6", "xg:w[global_nodes] xl:r[local_nodes]", 0, "", 0, kNodes},
    {"bs.bs7", "xl:w[local_nodes] xg:r[global_nodes]", 0, "", 0, kNodes},
    {"bs.bs8", "xl:u[local_nodes]", 0, "", 0, kNodes},
};
const FamilyRegistrar registrar("bs", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
