#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
#define MEMKERN_LOOP_STORE MEMKERN_DECLARE
#define MEMKERN_LOOP_MAP MEMKERN_DECLARE
#define MEMKERN_LOOP_REDUCE MEMKERN_REDUCE
#define MEMKERN_LOOP_BODY(name, body, second, arrays, flops, scalars, integers) \
  {name, arrays, flops, scalars, 0, integers},
constexpr DeclaredInteger kPlane[] = {{"rows", 1}, {"columns", 1}};
constexpr DeclaredInteger kNeighbours[] = {{"rows", 3}, {"columns", 3}};
constexpr Declaration kDeclared[] = {
#include "families/loops/entries.inc"
};
const FamilyRegistrar registrar("loops", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
