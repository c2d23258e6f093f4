#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
#define MEMKERN_INDEXED MEMKERN_DECLARE
#define MEMKERN_CENTRAL MEMKERN_DECLARE
constexpr Declaration kDeclared[] = {
#include "families/raider/entries.inc"
};
const FamilyRegistrar registrar("raider", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
