#include "core/problem.hpp"

namespace memkern {
namespace {

class LaunchProblem : public Problem {
 public:
  using Problem::Problem;
  const void* args() const override { return this; }
  std::int64_t count() const override { return team().size(); }
};

std::unique_ptr<Problem> make(const std::string&, const std::string&, const std::string&,
                              const Inputs&, const Team& team, const Placement& placement) {
  return std::make_unique<LaunchProblem>(team, placement);
}

const FamilyRegistrar registrar("launch", make);

}  // namespace
}  // namespace memkern
