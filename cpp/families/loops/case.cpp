#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
#define MEMKERN_LOOP_STORE MEMKERN_DECLARE
#define MEMKERN_LOOP_MAP MEMKERN_DECLARE
#define MEMKERN_LOOP_REDUCE MEMKERN_REDUCE
#define MEMKERN_LOOP_BODY(name, body, second, ...) MEMKERN_DECLARE(name, body, __VA_ARGS__)
constexpr Declaration kDeclared[] = {
#include "families/loops/entries.inc"
};
const FamilyRegistrar registrar("loops", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
