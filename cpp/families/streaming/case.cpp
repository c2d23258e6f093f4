// Prepares streaming cases: the arrays that the kernel declares, with the lengths that it accesses,
// and index arrays that stay within these lengths.
#include "families/streaming/case.hpp"

#include <algorithm>
#include <limits>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "families/streaming/args.hpp"

namespace memkern {
namespace {

struct Index {
  std::string name;
  std::int64_t length;
  std::int64_t low;
  std::int64_t bound;
};

// The iterations of a kernel and the arrays that it accesses.
struct Extent {
  std::int64_t count = 0;  // iterations
  // With their lengths, in the order of the body; empty: those declared, of `count` elements each.
  std::vector<std::pair<std::string, std::int64_t>> arrays;
  std::vector<Index> indices;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

Extent extent_of(const std::string& kernel, const Inputs& inputs, int workers) {
  Extent e;
  if (kernel == "bs.bs0" || kernel.starts_with("launch.")) {
    e.count = workers;
  } else if (kernel == "bs.bs6" || kernel == "bs.bs8") {
    const std::int64_t local = inputs.integer("local_nodes");
    e.count = inputs.integer("global_nodes");
    e.rows = e.count;
    const std::int64_t entries = inputs.index("columns").size;
    if (kernel == "bs.bs6") e.arrays.emplace_back("xg", e.count);
    e.arrays.emplace_back("xl", local);
    e.indices = {{"row_starts", checked_add(e.count, 1, "global_nodes"), 0, entries + 1},
                 {"columns", entries, 0, local}};
  } else if (kernel == "bs.bs7") {
    e.count = e.rows = inputs.integer("local_nodes");
    const std::int64_t global = inputs.integer("global_nodes");
    e.arrays = {{"xl", e.count}, {"xg", global}};
    e.indices = {{"ids", e.count, -1, global}};
  } else if (kernel == "loops.stencil") {
    e.rows = inputs.integer("rows");
    e.columns = inputs.integer("columns");
    e.count = e.rows - 2;
    const std::int64_t both = checked_mul(e.rows, e.columns, "rows times columns");
    e.arrays = {{"a", both}, {"b", both}};
  } else if (kernel == "loops.matvec") {
    e.rows = e.count = inputs.integer("rows");
    e.columns = inputs.integer("columns");
    e.arrays = {{"y", e.rows},
                {"A", checked_mul(e.rows, e.columns, "rows times columns")},
                {"x", e.columns}};
  } else {
    e.count = e.rows = inputs.integer("elements");
    for (const auto& [name, view] : inputs.indices) {
      e.indices.push_back({name, e.count, 0, e.count});
    }
  }
  return e;
}

// The first rows of blocks, and the number of rows: a block ends before it has too many rows or
// entries. `starts` has been checked.
std::vector<std::int64_t> row_blocks(const IndexView& starts, std::int64_t most_entries) {
  std::vector<std::int64_t> first = {0};
  for (std::int64_t row = 1; row < starts.size - 1; ++row) {
    const bool full = row - first.back() == std::max<std::int64_t>(most_entries / 2, 1);
    const std::int64_t entries = starts[row + 1] - starts[first.back()];
    if (full || entries > most_entries) first.push_back(row);
  }
  first.push_back(starts.size - 1);
  return first;
}

class StreamingProblem : public Problem {
 public:
  StreamingProblem(const std::string& kernel, DType dtype, const std::string& index_dtype,
                   const Inputs& inputs, const Team& team, const Placement& placement)
      : Problem(declaration_of(kernel), team, placement), dtype_(dtype), index_dtype_(index_dtype) {
    Extent extent = extent_of(kernel, inputs, workers());
    count_ = extent.count;
    const RegisteredEntry& entry = baseline_entry(kernel, extent);
    const bool reduces = entry.finish != nullptr;
    if (extent.arrays.empty()) {
      for (const DeclaredArray& a : declared()) {
        if (a.name != kResult) extent.arrays.emplace_back(a.name, extent.count);
      }
    }
    elementwise_ = extent.columns == 0;
    const std::size_t streams = extent.arrays.size();
    for (const auto& [name, length] : extent.arrays) add_array(name, dtype, length, false);
    if (reduces) add_array(kResult, DType::F64, 1, false);
    if (extent.indices.empty() != index_dtype.empty()) {
      throw InputError("kernel '" + kernel + "' has " +
                       (extent.indices.empty() ? "no" : "indices and needs an") + " index_dtype");
    }
    for (const Index& index : extent.indices) {
      const IndexView& view = inputs.index(index.name, index.length);
      highest_ = std::max(highest_, index.bound - 1);
      add_indices(index.name, view, parse_index_dtype(index_dtype), index.low, index.bound);
    }
    commit();
    for (std::size_t k = 0; k < streams; ++k) args_.stream[k] = arrays()[k].data;
    for (std::size_t k = 0; k < extent.indices.size(); ++k) {
      args_.index[k] = indices(extent.indices[k].name);
      if (extent.indices[k].name == "row_starts") {
        // Bodies rely on rows that cover all entries in order.
        check_starts("row_starts", extent.indices[k].bound - 1);
      }
    }
    if (kernel == "bs.bs6" && device() != nullptr) {
      const std::int64_t nodes = inputs.option("nodes_per_block");
      if (nodes > 0) args_.block_entries = nodes;
      const auto first = row_blocks(inputs.index("row_starts"), args_.block_entries);
      args_.row_blocks = own(first);
      args_.row_block_count = std::ssize(first) - 1;
    }
    if (reduces && device() != nullptr) {
      args_.partial = own(std::vector<double>(StreamingArgs::kDevicePartials));
      args_.result = reinterpret_cast<double*>(arrays()[streams].data);
    } else if (reduces) {
      partials_.resize(static_cast<std::size_t>(workers() * StreamingArgs::kPartialStride));
      args_.partial = partials_.data();
      // Initialises the partial results for the first invocation; its result is not used.
      double unused = 0.0;
      args_.result = &unused;
      entry.finish(&args_, workers());
      args_.result = reinterpret_cast<double*>(arrays()[streams].data);
    }
    const auto number = [&](const char* name) {
      const auto found = inputs.numbers.find(name);
      return found == inputs.numbers.end() ? 1.0 : found->second;
    };
    args_.streams = static_cast<int>(streams);
    args_.rows = extent.rows;
    args_.columns = extent.columns;
    args_.distance = std::min(inputs.option("prefetch"), extent.count);
    args_.blocks = inputs.option("blocks", StreamingArgs::kMaxReducingBlocks);
    args_.alpha = number("alpha");
    args_.beta = number("beta");
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }
  std::string index_dtype() const override { return index_dtype_; }

  bool runs(const RegisteredEntry& entry) const override {
    if (device() != nullptr && entry.unroll != 0 && elementwise_ && !equally_aligned()) {
      // Vectors of all arrays can't be aligned, and single elements have only one unrolling.
      return false;
    }
    const std::string variant = entry.variant;
    // Hardware gathers of 4-byte values take 4-byte indices.
    const bool narrows = dtype_size(dtype_) == 4 && index_dtype_ == "int64";
    const bool vectors = variant == "simd" || (variant == "nt" && entry.isa != "baseline");
    return !(vectors && narrows) || highest_ <= std::numeric_limits<std::int32_t>::max();
  }

 private:
  static constexpr const char* kResult = "result";  // of a reduction

  // The kernel's entry for the baseline. Throws InputError if it takes another number of index
  // arrays.
  static const RegisteredEntry& baseline_entry(const std::string& kernel, const Extent& extent) {
    for (const RegisteredEntry& e : registered_entries()) {
      if (kernel != e.kernel || std::string(e.isa) != "baseline") continue;
      if (extent.indices.size() != static_cast<std::size_t>(e.indices)) {
        throw InputError("kernel '" + kernel + "' takes " + std::to_string(e.indices) +
                         " index arrays, not " + std::to_string(extent.indices.size()));
      }
      return e;
    }
    throw InputError("there is no kernel '" + kernel + "'");
  }

  // Whether vectors of 16 bytes can be aligned in all arrays.
  bool equally_aligned() const {
    for (int k = 1; k < args_.streams; ++k) {
      const auto apart =
          static_cast<std::byte*>(args_.stream[k]) - static_cast<std::byte*>(args_.stream[0]);
      if (apart % 16 != 0) return false;
    }
    return true;
  }

  StreamingArgs args_;
  bool elementwise_ = false;
  DType dtype_;
  std::string index_dtype_;
  std::int64_t count_ = 0;
  std::int64_t highest_ = 0;
  std::vector<double> partials_;
};

}  // namespace

std::unique_ptr<Problem> make_streaming(const std::string& kernel, const std::string& dtype,
                                        const std::string& index_dtype, const Inputs& inputs,
                                        const Team& team, const Placement& placement) {
  return std::make_unique<StreamingProblem>(kernel, parse_dtype(dtype), index_dtype, inputs, team,
                                            placement);
}

}  // namespace memkern
