// Prepares gather and scatter cases: sizes of arrays, checks of indices, placement.
#include "families/spatter/args.hpp"

#include <algorithm>
#include <limits>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "engine/problem.hpp"

namespace memkern {
namespace {

constexpr std::int64_t kLine_B = 64;

// The deltas of gathers or scatters, their prefix sums, and the range of the bases.
class Walk {
 public:
  Walk(const std::string& name, std::vector<std::int64_t> deltas, std::int64_t count)
      : deltas_(std::move(deltas)) {
    const auto cycle = static_cast<std::int64_t>(deltas_.size());
    const std::string what =
        "the base that " + name + " reaches in " + std::to_string(count) + " instances";
    for (const std::int64_t delta : deltas_) {
      prefix_.push_back(period_);
      period_ = checked_add(period_, delta, what.c_str());
    }
    for (std::int64_t phase = 0; phase < std::min(cycle, count); ++phase) {
      const std::int64_t first = prefix_[static_cast<std::size_t>(phase)];
      const std::int64_t rounds = (count - 1 - phase) / cycle;
      const std::int64_t last =
          checked_add(first, checked_mul(rounds, period_, what.c_str()), what.c_str());
      low_ = std::min({low_, first, last});
      high_ = std::max({high_, first, last});
    }
    if (low_ == std::numeric_limits<std::int64_t>::min()) {
      throw InputError(what + " does not fit 64 bits: use smaller sizes");
    }
  }

  // Size of the sparse array for patterns with the largest index `top`. Bases are shifted so that
  // the lowest one is 0 instead of negative.
  std::int64_t extent(std::int64_t top) const {
    const char* what = "the sparse array's size";
    return checked_add(checked_add(high_, -low_, what), checked_add(top, 1, what), what);
  }

  // Without the arrays of deltas and prefix sums.
  SpatterArgs::Walk args() const {
    return {-low_, static_cast<std::int64_t>(deltas_.size()), nullptr, nullptr, period_};
  }
  const std::vector<std::int64_t>& deltas() const { return deltas_; }
  const std::vector<std::int64_t>& prefix() const { return prefix_; }

 private:
  std::vector<std::int64_t> deltas_;
  std::vector<std::int64_t> prefix_;
  std::int64_t period_ = 0;
  std::int64_t low_ = 0;
  std::int64_t high_ = 0;
};

std::int64_t largest(const std::string& name, const std::vector<std::int64_t>& index) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0) {
      throw InputError(name + "[" + std::to_string(i) + "] is " + std::to_string(index[i]) +
                       ": indices must not be negative");
    }
  }
  return *std::max_element(index.begin(), index.end());
}

class SpatterProblem : public Problem {
 public:
  SpatterProblem(const std::string& kernel, DType dtype, DType index_dtype, const Inputs& inputs,
                 const Team& team, const Placement& placement)
      : Problem(declaration_of(kernel), team, placement), dtype_(dtype), index_dtype_(index_dtype) {
    const bool multi = kernel == "spatter.multigather" || kernel == "spatter.multiscatter";
    const bool both = kernel == "spatter.gs";
    const bool gathers = both || kernel == "spatter.gather" || kernel == "spatter.multigather";
    const bool scatters = both || kernel == "spatter.scatter" || kernel == "spatter.multiscatter";

    args_.count = inputs.integer("count");
    args_.wrap = both ? 1 : inputs.integer("wrap");

    std::vector<std::int64_t> gather;
    std::vector<std::int64_t> scatter;
    std::vector<std::int64_t> outer;
    if (gathers) gather = inputs.copy("pattern_gather");
    if (scatters) scatter = inputs.copy("pattern_scatter");
    if (multi) outer = inputs.copy("pattern");
    if (both && gather.size() != scatter.size()) {
      throw InputError("pattern_gather has " + std::to_string(gather.size()) +
                       " indices and pattern_scatter " + std::to_string(scatter.size()) +
                       ": gs needs as many of both");
    }
    args_.length = static_cast<std::int64_t>(gathers ? gather.size() : scatter.size());
    checked_mul(args_.length, args_.count, "the number of elements moved");
    divided_ = args_.divided() && placement.device == nullptr;
    args_.distance = std::min(inputs.option("prefetch"), divided_ ? args_.length : args_.count);

    constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
    const auto reach = [&](const char* name, const std::vector<std::int64_t>& inner) {
      return multi ? largest("pattern", outer) : largest(name, inner);
    };
    std::int64_t gather_size = 0;
    std::int64_t scatter_size = 0;
    if (gathers) {
      const Walk walk("delta_gather", inputs.copy("delta_gather"), args_.count);
      args_.gather_walk = owned(walk);
      highest_ = reach("pattern_gather", gather);
      gather_size = walk.extent(highest_);
    }
    if (scatters) {
      const Walk walk("delta_scatter", inputs.copy("delta_scatter"), args_.count);
      args_.scatter_walk = owned(walk);
      const std::int64_t top = reach("pattern_scatter", scatter);
      highest_ = std::max(highest_, top);
      scatter_size = walk.extent(top);
    }
    const std::int64_t inner_bound = multi ? static_cast<std::int64_t>(outer.size()) : kAny;
    const auto list = [&](const char* name, const std::vector<std::int64_t>& values,
                          std::int64_t bound) -> const void* {
      if (!divided_) return own_indices(name, values, index_dtype, bound);
      // The size of the sparse array fits 64 bits, and so does one more than its largest index.
      add_indices(name, {values.data(), std::ssize(values)}, index_dtype, 0,
                  bound == kAny ? largest(name, values) + 1 : bound);
      return nullptr;
    };
    if (multi) args_.outer_index = list("pattern", outer, kAny);
    if (gathers) args_.gather_index = list("pattern_gather", gather, inner_bound);
    if (scatters) args_.scatter_index = list("pattern_scatter", scatter, inner_bound);

    if (gathers) add_array(both ? "sparse_gather" : "sparse", dtype, gather_size, false);
    if (scatters) add_array(both ? "sparse_scatter" : "sparse", dtype, scatter_size, false);
    if (!both) {
      const std::int64_t columns = checked_mul(args_.length, args_.wrap, "length times wrap");
      add_array("dense", dtype, columns, !divided_);
    }
    commit();
    if (divided_) {
      if (multi) args_.outer_index = indices("pattern");
      if (gathers) args_.gather_index = indices("pattern_gather");
      if (scatters) args_.scatter_index = indices("pattern_scatter");
    }
    if (args_.distance > 0 && !divided_) collect_lines(multi ? outer : gathers ? gather : scatter);

    if (gathers) args_.source = arrays().front().data;
    if (scatters) args_.target = arrays()[both ? 1 : 0].data;
    if (!both) {
      args_.dense = arrays().back().data;
      args_.dense_stride = divided_ ? 0 : arrays().back().row_stride;
    }
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return divided_ ? args_.blocks() : args_.count; }
  std::string index_dtype() const override { return dtype_name(index_dtype_); }

  bool runs(const RegisteredEntry& entry) const override {
    const bool moves_several = entry.unroll != 0 || std::string(entry.variant) == "shared";
    if (device() != nullptr && moves_several && !args_.unrolls(dtype_size(index_dtype_))) {
      return false;
    }
    // Hardware gathers of 4-byte values take 4-byte indices.
    const bool narrows = dtype_ == DType::F32 && index_dtype_ == DType::I64;
    return std::string(entry.variant) != "simd" || !narrows ||
           highest_ <= std::numeric_limits<std::int32_t>::max();
  }

 private:
  SpatterArgs::Walk owned(const Walk& walk) {
    SpatterArgs::Walk args = walk.args();
    args.delta = own(walk.deltas());
    args.prefix = own(walk.prefix());
    return args;
  }

  // One index for each line that an instance touches, so that no line is prefetched twice.
  void collect_lines(const std::vector<std::int64_t>& index) {
    // No more than there are in the sparse array.
    std::vector<bool> seen(static_cast<std::size_t>(highest_ * dtype_size(dtype_) / kLine_B + 1));
    std::vector<std::int64_t> lines;
    for (const std::int64_t i : index) {
      auto known = seen[static_cast<std::size_t>(i * dtype_size(dtype_) / kLine_B)];
      if (!known) lines.push_back(i);
      known = true;
    }
    args_.line_index = own(lines);
    args_.lines = static_cast<std::int64_t>(lines.size());
  }

  SpatterArgs args_;
  DType dtype_;
  DType index_dtype_;
  bool divided_ = false;
  std::int64_t highest_ = 0;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string& index_dtype, const Inputs& inputs,
                              const Team& team, const Placement& placement) {
  return std::make_unique<SpatterProblem>(kernel, parse_value_dtype(dtype),
                                          parse_index_dtype(index_dtype), inputs, team, placement);
}

constexpr const char* kGather = "sparse:r[max(base) + max(index) + 1] dense:w[workers, wrap * L]";
constexpr const char* kScatter = "sparse:w[max(base) + max(index) + 1] dense:r[workers, wrap * L]";
constexpr DeclaredInteger kIntegers[] = {{"count", 1}, {"wrap", 1}};
constexpr Declaration kDeclared[] = {
    {"spatter.gather", kGather, 0, "", 0, kIntegers},
    {"spatter.scatter", kScatter, 0, "", 0, kIntegers},
    {"spatter.gs",
     "sparse_gather:r[max(base) + max(index) + 1] sparse_scatter:w[max(base) + max(index) + 1]", 0,
     "", 0, kIntegers},
    {"spatter.multigather", kGather, 0, "", 0, kIntegers},
    {"spatter.multiscatter", kScatter, 0, "", 0, kIntegers},
};
const FamilyRegistrar registrar("spatter", make, kDeclared);

}  // namespace
}  // namespace memkern
