#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
constexpr Declaration kDeclared[] = {
#include "families/loops/entries.inc"
};
const DeclarationRegistrar declared(kDeclared, std::size(kDeclared));
const FamilyRegistrar registrar("loops", make_streaming);

}  // namespace
}  // namespace memkern
