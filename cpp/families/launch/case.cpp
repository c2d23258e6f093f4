#include "families/streaming/case.hpp"

namespace memkern {
namespace {

constexpr Declaration kDeclared[] = {
    {"launch.empty", "", 0, ""},
    {"launch.compute", "", 0, ""},
};
const FamilyRegistrar registrar("launch", make_streaming, kDeclared);

}  // namespace
}  // namespace memkern
