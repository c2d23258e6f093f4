// Prepares cases of atomics: an array with all words that are accessed, and indices within it.
#include "families/amo/patterns.hpp"

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "engine/problem.hpp"

namespace memkern {
namespace {

class AmoProblem : public Problem {
 public:
  AmoProblem(const std::string& kernel, DType dtype, const std::string& index_dtype,
             const Inputs& inputs, const Team& team, const Placement& placement)
      : Problem(declaration_of(kernel), team, placement), index_dtype_(index_dtype) {
    const std::int64_t workers = inputs.integer("workers");
    if (workers != this->workers()) {
      throw InputError("the case was made for " + std::to_string(workers) +
                       " workers but would run with " + std::to_string(this->workers()) +
                       ": make it with the number of threads that it will run with");
    }
    const std::int64_t iters = inputs.integer("iters");
    count_ = checked_mul(workers, iters, "iters times workers");
    args_.stride = inputs.integer("stride");
    args_.hot = inputs.integer("hot");
    args_.shared = inputs.integer("shared") != 0;
    args_.operand = inputs.integer("operand");

    const bool chases = kernel == "amo.ptrchase";
    const bool indexed = !index_dtype.empty();
    const std::int64_t words = chases ? 0 : inputs.integer("words");
    if (!chases && kernel != "amo.rand" && kernel != "amo.sg") {
      const std::int64_t places = kernel == "amo.central" ? args_.hot
                                  : args_.shared          ? iters
                                                          : count_;
      const std::int64_t last = checked_mul(places - 1, args_.stride, "iterations times stride");
      if (last >= words) {
        throw InputError(std::to_string(places) + " words at stride " +
                         std::to_string(args_.stride) + " need an array of " +
                         std::to_string(checked_add(last, 1, "the array")) + " words, not " +
                         std::to_string(words));
      }
    }
    if (!chases) add_array("VAL", dtype, words, false);
    add_array("tally", DType::U64, kTallies, true);
    if (indexed) {
      const IndexView& view = inputs.index("IDX");
      const std::int64_t least = checked_add(count_, 1, "iterations");
      if (view.size < least) {
        throw InputError("IDX must have at least " + std::to_string(least) + " entries, not " +
                         std::to_string(view.size));
      }
      add_indices("IDX", view, parse_index_dtype(index_dtype), 0, chases ? view.size : words);
    }
    commit();
    if (!chases) args_.values = array("VAL").data;
    if (indexed) args_.index = indices("IDX");
    args_.tally = reinterpret_cast<std::uint64_t*>(array("tally").data);
    args_.tally_stride = array("tally").row_stride;
    args_.workers = workers;
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }
  std::string index_dtype() const override { return index_dtype_; }
  // With shared words, the word depends on the index of the iteration in its worker's part; the
  // variant "coalesced" has no such index.
  bool runs(const RegisteredEntry& entry) const override {
    return !args_.shared || std::string(entry.variant) != "coalesced";
  }

 private:
  AmoArgs args_;
  std::string index_dtype_;
  std::int64_t count_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string& index_dtype, const Inputs& inputs,
                              const Team& team, const Placement& placement) {
  return std::make_unique<AmoProblem>(kernel, parse_dtype(dtype), index_dtype, inputs, team,
                                      placement);
}

constexpr const char* kArrays = "VAL:u[words] tally:u[workers, sums]";
constexpr DeclaredInteger kIntegers[] = {{"workers", 1}, {"iters", 1}, {"words", 1},
                                         {"stride", 1},  {"hot", 1},   {"shared", 0, 1},
                                         {"operand"}};
constexpr Declaration kDeclared[] = {
    {"amo.rand", kArrays, 0, "", 1, kIntegers},
    {"amo.stride1", kArrays, 0, "", 1, kIntegers},
    {"amo.striden", kArrays, 0, "", 1, kIntegers},
    {"amo.ptrchase", "tally:u[workers, sums]", 0, "", 1, kIntegers},
    {"amo.central", kArrays, 0, "", 1, kIntegers},
    {"amo.scatter", kArrays, 0, "", 3, kIntegers},
    {"amo.gather", kArrays, 0, "", 3, kIntegers},
    {"amo.sg", kArrays, 0, "", 4, kIntegers},
};
const FamilyRegistrar amo("amo", make, kDeclared);

}  // namespace
}  // namespace memkern
