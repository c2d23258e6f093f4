// What a streaming case needs: arrays of one length, as its spec declares them, and for a
// reduction the workers' partial results.
#include "kernels/streaming.hpp"

#include "core/errors.hpp"
#include "core/problem.hpp"

namespace memkern {
namespace {

class StreamingProblem : public Problem {
 public:
  StreamingProblem(const std::string& kernel, DType dtype, const Inputs& inputs, const Team& team,
                   const Placement& placement)
      : Problem(team, placement), dtype_(dtype), count_(inputs.integer("elements", 1)) {
    if (inputs.integer("prefetch", 0) > 0) {
      throw InputError("kernel '" + kernel + "' has no software prefetch");
    }
    std::size_t streams = inputs.arrays.size();
    bool reduces = false;
    for (const RegisteredEntry& e : registered_entries()) {
      if (kernel != e.kernel) continue;
      reduces = e.finish != nullptr;
      if (streams != static_cast<std::size_t>(e.arrays) + (reduces ? 1 : 0)) {
        throw InputError("kernel '" + kernel + "' takes " + std::to_string(e.arrays) + " arrays" +
                         (reduces ? " and a result" : "") + ", not " + std::to_string(streams));
      }
    }
    if (reduces) --streams;
    for (std::size_t k = 0; k < inputs.arrays.size(); ++k) {
      const auto& [name, written] = inputs.arrays[k];
      if (k < streams) {
        add_array(name, dtype, count_, false, written);
      } else {
        add_array(name, DType::F64, 1, false, true);
      }
    }
    commit();
    for (std::size_t k = 0; k < streams; ++k) args_.stream[k] = arrays()[k].data;
    if (reduces) {
      args_.result = reinterpret_cast<double*>(arrays()[streams].data);
      partials_.resize(static_cast<std::size_t>(team.size() * StreamingArgs::kPartialStride));
      args_.partial = partials_.data();
    }
    const auto number = [&](const char* name) {
      const auto found = inputs.numbers.find(name);
      return found == inputs.numbers.end() ? 1.0 : found->second;
    };
    args_.alpha = number("alpha");
    args_.beta = number("beta");
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }
  DType dtype() const override { return dtype_; }

 private:
  StreamingArgs args_;
  DType dtype_;
  std::int64_t count_;
  std::vector<double> partials_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string&, const Inputs& inputs, const Team& team,
                              const Placement& placement) {
  return std::make_unique<StreamingProblem>(kernel, parse_value_dtype(dtype), inputs, team,
                                            placement);
}

const FamilyRegistrar stream("stream", make);
const FamilyRegistrar bs("bs", make);
const FamilyRegistrar loops("loops", make);

}  // namespace
}  // namespace memkern
