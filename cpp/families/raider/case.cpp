#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
constexpr Declaration kDeclared[] = {
#include "families/raider/entries.inc"
};
const DeclarationRegistrar declared(kDeclared, std::size(kDeclared));
const FamilyRegistrar registrar("raider", make_streaming);

}  // namespace
}  // namespace memkern
