#include "families/streaming/case.hpp"

namespace memkern {
namespace {

#include "families/streaming/declare.inc"
constexpr Declaration kDeclared[] = {
#include "families/squares/entries.inc"
};
const FamilyRegistrar registrar("squares", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
