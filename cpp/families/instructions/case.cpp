// Inputs of the loops over single instructions: constants, and a line for each store.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "engine/problem.hpp"
#include "families/instructions/args.hpp"

namespace memkern {
namespace {

constexpr std::int64_t kLine_B = 64;

class InstructionsProblem : public Problem {
 public:
  InstructionsProblem(const std::string& kernel, const Inputs& inputs, const Team& team,
                      const Placement& placement)
      : Problem(declaration_of(kernel), team, placement), count_(inputs.integer("count")) {
    if (workers() != 1) {
      throw InputError("instructions are counted on one core, not on " + std::to_string(workers()) +
                       " threads");
    }
    const std::int64_t stride = inputs.integer("stride");
    const bool random = inputs.integer("random") != 0;
    add_array("ends", DType::F64, InstructionArgs::kEnds, false);
    commit();

    std::vector<double> starts;
    std::vector<std::int64_t> index;
    for (std::int64_t chain = 0; chain < InstructionArgs::kChains; ++chain) {
      for (std::int64_t lane = 0; lane < InstructionArgs::kLanes; ++lane) {
        // The lanes of a vector add up to zero.
        const auto value = static_cast<double>(chain + 1);
        starts.push_back(lane % 2 == 0 ? value : -value);
        const std::int64_t k = chain * InstructionArgs::kLanes + lane;
        // Multiples of an odd number visit all positions of a power of two.
        index.push_back(random ? (197 * k + 89) % InstructionArgs::kTable : lane * stride);
      }
    }
    std::vector<double> table;
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < InstructionArgs::kTable; ++i) {
      table.push_back(static_cast<double>(i));
      places.push_back(i);
    }
    args_.ends = reinterpret_cast<double*>(array("ends").data);
    args_.starts = own_lines(starts);
    args_.stored = own_lines(std::vector<double>(InstructionArgs::kValues));
    args_.table = own_lines(table);
    args_.places = own_lines(places);
    args_.index = own_lines(index);
    args_.words =
        own_lines(std::vector<std::uint64_t>(InstructionArgs::kChains * InstructionArgs::kApart));
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }

 private:
  // Copy that begins at a line, so that no vector spans two lines.
  template <class T>
  T* own_lines(std::vector<T> values) {
    constexpr auto kPerLine = kLine_B / static_cast<std::int64_t>(sizeof(T));
    const std::vector<T> contents = values;
    values.resize(values.size() + static_cast<std::size_t>(kPerLine));
    T* place = own(values);
    while (reinterpret_cast<std::uintptr_t>(place) % kLine_B != 0) ++place;
    for (std::size_t i = 0; i < contents.size(); ++i) place[i] = contents[i];
    return place;
  }

  std::int64_t count_;
  InstructionArgs args_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string& index_dtype, const Inputs& inputs,
                              const Team& team, const Placement& placement) {
  if (dtype != "float64" || !index_dtype.empty()) {
    throw InputError("kernel '" + kernel + "' has float64 values and no indices");
  }
  return std::make_unique<InstructionsProblem>(kernel, inputs, team, placement);
}

constexpr DeclaredInteger kIntegers[] = {
    {"count", 1}, {"stride", 0, InstructionArgs::kMaxStride}, {"random", 0, 1}};
constexpr Declaration kDeclared[] = {
    {"instructions.repeat", "ends:w[chains * lanes + 2]", 0, "", 0, kIntegers},
};
const FamilyRegistrar instructions("instructions", make, kDeclared);

}  // namespace
}  // namespace memkern
