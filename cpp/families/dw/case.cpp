// Prepares the hopping term: fields with the lengths that the tables of sites require, and tables
// whose entries stay within the fields.
#include "families/dw/args.hpp"

#include <limits>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "engine/problem.hpp"

namespace memkern {
namespace {

class DwProblem : public Problem {
 public:
  DwProblem(const std::string& kernel, DType dtype, const Inputs& inputs, const Team& team,
            const Placement& placement)
      : Problem(declaration_of(kernel), team, placement),
        count_(inputs.integer("sites")),
        template_variant_("lexicographic") {
    const std::int64_t reals = inputs.integer("reals");
    const bool split = inputs.integer("split") != 0;
    const bool shared = inputs.integer("shared") != 0;
    if (reals > 1) {
      const std::int64_t bits = checked_mul(reals, 8 * dtype_size(dtype), "reals");
      template_variant_ = std::string(split ? "RRII/" : "RIRI/") + (shared ? "s/" : "sites/") +
                          std::to_string(bits);
    } else if (!split || !shared) {
      throw InputError("a vector of one real needs split=1 and shared=1");
    }
    const std::int64_t vector_B = reals * dtype_size(dtype);
    if (placement.offset_B % vector_B != 0) {
      throw InputError("offset must be a multiple of the " + std::to_string(vector_B) +
                       " bytes of a vector, not " + std::to_string(placement.offset_B));
    }
    const std::int64_t numbers = split ? reals : reals / 2;  // complex numbers per vector
    args_.inner = inputs.integer("inner");
    args_.distance = inputs.option("prefetch");
    if (args_.distance > count_) args_.distance = count_;
    args_.into_l1 = inputs.integer("into_l1") != 0;
    args_.prefetched = inputs.integer("prefetched");
    args_.sites = count_;
    if (count_ > std::numeric_limits<std::int32_t>::max() / 2) {
      throw InputError("a table of " + std::to_string(count_) + " sites is too long for int32");
    }
    const auto add_table = [&](const char* name, std::int64_t length, std::int64_t bound,
                               DType type) {
      add_indices(name, inputs.index(name, length), type, 0, bound);
    };
    const char* what = "the lattice";
    const std::int64_t spinors =
        checked_mul(checked_mul(args_.inner, DwArgs::kSpinor, what), numbers, what);
    const std::int64_t links = checked_mul(DwArgs::kLinks, shared ? 1 : numbers, what);
    add_array("links", dtype, checked_mul(count_, links, what), false);
    add_array("psi", dtype, checked_mul(count_, spinors, what), false);
    add_array("result", dtype, checked_mul(count_, spinors, what), false);
    add_table("order", count_, count_, DType::I32);
    add_table("neighbours", DwArgs::kDirections * count_, 2 * count_, DType::I32);
    add_table("permutations", DwArgs::kDirections * reals, reals,
              dtype == DType::F32 ? DType::I32 : DType::I64);
    commit();
    args_.links = array("links").data;
    args_.psi = array("psi").data;
    args_.result = array("result").data;
    args_.order = indices("order");
    args_.neighbours = indices("neighbours");
    args_.permutations = indices("permutations");
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }
  // Only entries that have the same layout of the fields.
  bool runs(const RegisteredEntry& entry) const override {
    return template_variant_ == entry.template_variant;
  }

 private:
  DwArgs args_;
  std::int64_t count_;
  std::string template_variant_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string&, const Inputs& inputs, const Team& team,
                              const Placement& placement) {
  return std::make_unique<DwProblem>(kernel, parse_value_dtype(dtype), inputs, team, placement);
}

constexpr DeclaredInteger kIntegers[] = {{"sites", 1},
                                         {"inner", 1},
                                         {"reals", 1},
                                         {"split", 0, 1},
                                         {"shared", 0, 1},
                                         {"into_l1", 0, 1},
                                         {"prefetched", 0, (1 << DwArgs::kDirections) - 1}};
// cuts: number of lattice sites in a vector.
constexpr Declaration kDeclared[] = {
    {"dw.hop",
     "links:r[sites * 144 * cuts] psi:r[sites * Ls * 24 * cuts] result:w[sites * Ls * 24 * cuts]",
     1320, "", 0, kIntegers},
};
const FamilyRegistrar dw("dw", make, kDeclared);

}  // namespace
}  // namespace memkern
