#include <algorithm>
#include <array>

#include "families/streaming/args.hpp"
#include "families/streaming/case.hpp"

namespace memkern {
namespace {

// STREAM's four kernels in turn over the same three arrays.
class RotationProblem : public Problem {
 public:
  RotationProblem(const std::string& kernel, DType dtype, const Inputs& inputs, const Team& team,
                  const Placement& placement)
      : Problem(declaration_of(kernel), team, placement), count_(inputs.integer("elements")) {
    for (const DeclaredArray& a : declared()) add_array(a.name, dtype, count_, false);
    commit();
    const auto alpha = inputs.numbers.find("alpha");
    for (std::size_t k = 0; k < kKernels.size(); ++k) {
      StreamingArgs& args = args_.at(k);
      for (const DeclaredArray& a : arrays_of(declaration_of(kKernels.at(k)))) {
        args.stream[args.streams++] = array(a.name).data;
      }
      args.alpha = alpha == inputs.numbers.end() ? 1.0 : alpha->second;
      args.distance = std::min(inputs.option("prefetch"), count_);
    }
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }
  std::vector<Stage> stages() const override {
    std::vector<Stage> all;
    for (std::size_t k = 0; k < kKernels.size(); ++k) {
      all.push_back({kKernels.at(k), &args_.at(k)});
    }
    return all;
  }

 private:
  static constexpr std::array<const char*, 4> kKernels{"stream.copy", "stream.scale", "stream.add",
                                                       "stream.triad"};
  std::array<StreamingArgs, 4> args_;
  std::int64_t count_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string& index_dtype, const Inputs& inputs,
                              const Team& team, const Placement& placement) {
  if (kernel == "stream.rotation") {
    return std::make_unique<RotationProblem>(kernel, parse_dtype(dtype), inputs, team, placement);
  }
  return make_streaming(kernel, dtype, index_dtype, inputs, team, placement);
}

#include "families/streaming/declare.inc"
constexpr Declaration kDeclared[] = {
#include "families/stream/entries.inc"
    {"stream.rotation", "a:u b:w c:w", 4, "alpha=3", 0, kLength},
};
const FamilyRegistrar registrar("stream", make, kDeclared);

}  // namespace
}  // namespace memkern
