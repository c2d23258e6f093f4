// What the hopping term needs before its bodies may run: fields as long as the table of sites says,
// and a table that stays among them.
#include "families/dw/args.hpp"

#include <limits>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "engine/problem.hpp"

namespace memkern {
namespace {

class DwProblem : public Problem {
 public:
  DwProblem(DType dtype, const Inputs& inputs, const Team& team, const Placement& placement)
      : Problem(team, placement),
        dtype_(dtype),
        count_(inputs.integer("sites", 1)),
        form_("lexicographic") {
    const std::int64_t reals = inputs.integer("reals", 1);
    const bool split = inputs.integer("split", 0) != 0;
    const bool shared = inputs.integer("shared", 0) != 0;
    if (reals > 1) {
      const std::int64_t bits = checked_mul(reals, 8 * dtype_size(dtype), "reals");
      form_ = std::string(split ? "RRII/" : "RIRI/") + (shared ? "s/" : "sites/") +
              std::to_string(bits);
    } else if (!split || !shared) {
      throw InputError("numbers of a vector of one real can only be split and share their links");
    }
    const std::int64_t vector_B = reals * dtype_size(dtype);
    if (placement.offset_B % vector_B != 0) {
      throw InputError("offset must be a multiple of the " + std::to_string(vector_B) +
                       " bytes of a vector, not " + std::to_string(placement.offset_B));
    }
    const std::int64_t numbers = split ? reals : reals / 2;  // complex ones, of a vector
    args_.inner = inputs.integer("inner", 1);
    args_.distance = inputs.integer("prefetch", 0);
    if (args_.distance > count_) args_.distance = count_;
    args_.into_l1 = inputs.integer("into_l1", 0) != 0;
    args_.sites = count_;
    if (count_ > std::numeric_limits<std::int32_t>::max() / 2) {
      throw InputError("a table of " + std::to_string(count_) + " sites is too long for int32");
    }
    const auto take = [&](const char* name, std::int64_t length, std::int64_t bound, DType type) {
      add_indices(name, inputs.index(name, length), type, 0, bound);
    };
    const char* what = "the lattice";
    const std::int64_t spinors =
        checked_mul(checked_mul(args_.inner, DwArgs::kSpinor, what), numbers, what);
    const std::int64_t links = checked_mul(DwArgs::kLinks, shared ? 1 : numbers, what);
    add_array("links", dtype, checked_mul(count_, links, what), false, false);
    add_array("psi", dtype, checked_mul(count_, spinors, what), false, false);
    add_array("result", dtype, checked_mul(count_, spinors, what), false, true);
    take("order", count_, count_, DType::I32);
    take("neighbours", DwArgs::kDirections * count_, 2 * count_, DType::I32);
    take("permutations", DwArgs::kDirections * reals, reals,
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
  DType dtype() const override { return dtype_; }
  // Only what reads the fields as they are laid out.
  bool runs(const RegisteredEntry& entry) const override { return form_ == entry.form; }

 private:
  DwArgs args_;
  DType dtype_;
  std::int64_t count_;
  std::string form_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string&, const Inputs& inputs, const Team& team,
                              const Placement& placement) {
  if (kernel != "dw.hop") throw InputError("family dw has no kernel '" + kernel + "'");
  return std::make_unique<DwProblem>(parse_value_dtype(dtype), inputs, team, placement);
}

const FamilyRegistrar dw("dw", make);

}  // namespace
}  // namespace memkern
