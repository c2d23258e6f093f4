#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
constexpr Declaration kDeclared[] = {
#include "families/bs/entries.inc"
    {"bs.bs0", "", 0, ""},
    // xl: local nodes of a mesh, xg: its unique nodes.
    {"bs.bs6", "xg:w[global_nodes] xl:r[local_nodes]", 0, ""},
    {"bs.bs7", "xl:w[local_nodes] xg:r[global_nodes]", 0, ""},
    {"bs.bs8", "xl:u[local_nodes]", 0, ""},
};
const FamilyRegistrar registrar("bs", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
