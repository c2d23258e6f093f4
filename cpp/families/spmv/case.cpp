// Prepares sparse matrix-vector products: converts compressed rows to the format of the kernel, in
// memory placed where the workers read it, divided among them by rows or by entries.
#include "families/spmv/args.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "core/parts.hpp"
#include "core/sampler.hpp"
#include "engine/problem.hpp"
#include "families/spmv/sell.hpp"

namespace memkern {
namespace {

enum class Format { Crs, Sell, Ell, Csc };

class SpmvProblem : public Problem {
 public:
  SpmvProblem(const std::string& kernel, DType dtype, DType index, const Inputs& inputs,
              const Team& team, const Placement& placement)
      : Problem(declaration_of(kernel), team, placement), dtype_(dtype), index_(index) {
    const double begin_s = now();
    const Source source(kernel, dtype, inputs);
    const Format format = kernel == "spmv.sell"  ? Format::Sell
                          : kernel == "spmv.ell" ? Format::Ell
                          : kernel == "spmv.csc" ? Format::Csc
                                                 : Format::Crs;
    const bool by_entries = inputs.integer("by_entries") != 0;
    args_.rows = source.rows;
    args_.distance = inputs.option("prefetch");
    if (format == Format::Sell || format == Format::Ell) {
      const bool ell = format == Format::Ell;
      const std::int64_t chunk = ell ? source.rows : inputs.integer("chunk");
      const std::int64_t chunks = ell ? 1 : (source.rows - 1) / chunk + 1;
      // The iterations of ELLPACK are rows.
      const auto split = inputs.split(ell ? source.rows : chunks);
      const std::int64_t split_row = std::min(ell ? 0 : split.value_or(0) * chunk, source.rows);
      layout_ =
          sell_layout(team, source.starts, chunk, ell ? 1 : inputs.integer("sigma"), split_row);
      place(format, source, layout_.starts, checked_add(source.columns, 1, "columns"), by_entries,
            split);
      if (inputs.integer("move_columns") != 0) move_columns(source);
      with_types(source.index.narrow, [&]<class T, class I, class J>(T, I, J) {
        sell_fill(team, layout_, source.starts, static_cast<const I*>(source.index.data),
                  static_cast<const T*>(source.values.data), source.columns,
                  moved_.empty() ? nullptr : moved_.data(), reinterpret_cast<T*>(data("values")),
                  reinterpret_cast<J*>(indices("columns")));
      });
    } else {
      place(format, source, source.starts, source.columns, by_entries,
            inputs.split(std::ssize(source.starts) - 1));
    }
    if (format == Format::Csc) {
      constexpr std::int64_t kPad_B = 256;
      const std::int64_t row_B = round_up(source.rows * dtype_size(dtype), kPad_B);
      args_.partial_stride = row_B / dtype_size(dtype);
      partial_.resize(static_cast<std::size_t>(checked_mul(row_B, team.size(), "rows")));
      args_.partial = partial_.data();
    }
    args_.values = data("values");
    args_.columns = indices("columns");
    args_.starts = indices("starts");
    args_.x = array("x").data;
    args_.y = array("y").data;
    facts_ = {{"convert_s", now() - begin_s},
              {"entries_stored", static_cast<double>(args_.entries)}};
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }
  std::string index_dtype() const override { return dtype_name(index_); }
  Boundaries boundaries() const override { return boundaries_; }
  std::map<std::string, double> facts() const override { return facts_; }

  bool runs(const RegisteredEntry& entry) const override {
    // Hardware gathers of 4-byte values take 4-byte indices.
    const std::string variant = entry.variant;
    const bool narrows = dtype_ == DType::F32 && index_ == DType::I64;
    return !((variant == "simd" || variant == "nta") && narrows) ||
           array("x").columns <= std::numeric_limits<std::int32_t>::max();
  }

 private:
  // The matrix as given: compressed rows, or for CSC compressed columns.
  struct Source {
    Source(const std::string& kernel, DType dtype, const Inputs& inputs)
        : rows(inputs.integer("rows")),
          columns(inputs.integer("columns")),
          lines(kernel == "spmv.csc" ? columns : rows),
          bound(kernel == "spmv.csc" ? rows : columns),
          starts(inputs.copy("starts")),
          index(inputs.index("columns")) {
      const auto found = inputs.data.find("values");
      if (found == inputs.data.end()) throw InputError("the input 'values' is missing");
      values = found->second;
      if (values.type != dtype) {
        throw InputError(std::string("values must be ") + dtype_name(dtype) + ", not " +
                         dtype_name(values.type));
      }
      if (values.size != index.size) {
        throw InputError("there are " + std::to_string(values.size) + " values for " +
                         std::to_string(index.size) + " columns");
      }
      const std::int64_t needed = checked_add(lines, 1, kernel == "spmv.csc" ? "columns" : "rows");
      if (std::ssize(starts) != needed) {
        throw InputError("starts must have " + std::to_string(needed) + " entries, not " +
                         std::to_string(starts.size()));
      }
      if (starts.front() != 0 || starts.back() != index.size ||
          !std::is_sorted(starts.begin(), starts.end())) {
        throw InputError("starts must ascend from 0 to the number of entries, " +
                         std::to_string(index.size));
      }
    }

    std::int64_t rows;
    std::int64_t columns;
    std::int64_t lines;  // number of compressed rows or columns
    std::int64_t bound;  // of the indices
    std::vector<std::int64_t> starts;
    IndexView index;
    DataView values;
  };

  // Adds all arrays and commits them. The entries of unit u (row, chunk or column) begin at
  // starts[u].
  void place(Format format, const Source& source, const std::vector<std::int64_t>& starts,
             std::int64_t x_size, bool by_entries, std::optional<std::int64_t> split) {
    const std::int64_t units = std::ssize(starts) - 1;
    const std::int64_t stored = starts.back();
    args_.entries = stored;
    args_.distance = std::min(args_.distance, stored);
    args_.chunk = layout_.chunk;
    args_.step = source.rows;
    args_.width = stored / source.rows;
    count_ = format == Format::Ell ? source.rows : units;
    Boundaries in_matrix;
    Boundaries in_y;
    if (format != Format::Ell && team().size() > 1) {
      boundaries_ = partition(starts, {split.value_or(0), units}, team().size(), by_entries);
      if (split) {
        const Boundaries before = partition(starts, {0, *split}, team().size(), by_entries);
        boundaries_.insert(boundaries_.begin(), before.begin(), before.end() - 1);
      }
      for (const std::int64_t unit : boundaries_) {
        in_matrix.push_back(starts[static_cast<std::size_t>(unit)]);
        if (format != Format::Csc) in_y.push_back(unit * layout_.chunk);
      }
    }
    const bool chunked = format == Format::Sell || format == Format::Ell;
    const std::int64_t padded = checked_mul(units, layout_.chunk, "rows");
    add_array("x", dtype_, x_size, false);
    add_array("y", dtype_, format == Format::Sell ? padded : source.rows, false, in_y);
    add_indices("starts", {starts.data(), units + 1}, index_, 0, stored + 1);
    if (chunked) {
      add_indices("columns", {nullptr, stored}, index_, 0, x_size, in_matrix, SpmvArgs::kTail);
      add_data("values", {nullptr, stored, dtype_}, in_matrix, SpmvArgs::kTail);
      add_indices("order", {layout_.order.data(), source.rows}, DType::I64, 0, source.rows);
    } else {
      add_indices("columns", source.index, index_, 0, source.bound, in_matrix, SpmvArgs::kTail);
      add_data("values", source.values, in_matrix, SpmvArgs::kTail);
    }
    commit();
  }

  void move_columns(const Source& source) {
    if (source.rows != source.columns) {
      throw InputError("move_columns needs a square matrix, not one of " +
                       std::to_string(source.rows) + " rows and " + std::to_string(source.columns) +
                       " columns");
    }
    moved_.resize(layout_.order.size());
    for (std::size_t i = 0; i < moved_.size(); ++i) {
      moved_[static_cast<std::size_t>(layout_.order[i])] = static_cast<std::int64_t>(i);
    }
  }

  // Calls f with values of the types of the matrix's values, given indices and stored indices.
  template <class F>
  void with_types(bool narrow_in, const F& f) const {
    const auto by_out = [&]<class T, class I>(T t, I i) {
      if (index_ == DType::I32) {
        f(t, i, std::int32_t{});
      } else {
        f(t, i, std::int64_t{});
      }
    };
    const auto by_in = [&]<class T>(T t) {
      if (narrow_in) {
        by_out(t, std::int32_t{});
      } else {
        by_out(t, std::int64_t{});
      }
    };
    if (dtype_ == DType::F32) {
      by_in(float{});
    } else {
      by_in(double{});
    }
  }

  // Partition of some units with equal numbers of units or, as nearly as possible, of entries.
  static Boundaries partition(const std::vector<std::int64_t>& starts, Range units, int workers,
                              bool by_entries) {
    Boundaries boundaries{units.begin};
    const std::int64_t first = starts[static_cast<std::size_t>(units.begin)];
    const std::int64_t entries = starts[static_cast<std::size_t>(units.end)] - first;
    for (int w = 1; w < workers; ++w) {
      if (!by_entries) {
        const Range part = contiguous_part(units.end - units.begin, workers, w);
        boundaries.push_back(units.begin + part.begin);
        continue;
      }
      const std::int64_t wanted = first + contiguous_part(entries, workers, w).begin;
      const auto from = starts.begin() + boundaries.back();
      auto at = std::lower_bound(from, starts.begin() + units.end, wanted);
      // The nearer end of the row.
      if (at > from && wanted - *(at - 1) < *at - wanted) --at;
      boundaries.push_back(at - starts.begin());
    }
    boundaries.push_back(units.end);
    return boundaries;
  }

  SpmvArgs args_;
  DType dtype_;
  DType index_;
  std::int64_t count_ = 0;
  SellLayout layout_;
  std::vector<std::int64_t> moved_;
  Boundaries boundaries_;
  std::map<std::string, double> facts_;
  std::vector<std::byte> partial_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string& index_dtype, const Inputs& inputs,
                              const Team& team, const Placement& placement) {
  return std::make_unique<SpmvProblem>(kernel, parse_value_dtype(dtype),
                                       parse_index_dtype(index_dtype), inputs, team, placement);
}

constexpr DeclaredInteger kIntegers[] = {
    {"rows", 1},  {"columns", 1},         {"chunk", 1},
    {"sigma", 1}, {"move_columns", 0, 1}, {"by_entries", 0, 1}};
constexpr Declaration kDeclared[] = {
    {"spmv.crs", "x:r[columns] y:u[rows]", 2, "", 0, kIntegers},
    {"spmv.sell", "x:r[columns + 1] y:u[rows of whole chunks]", 2, "", 0, kIntegers},
    {"spmv.ell", "x:r[columns + 1] y:u[rows]", 2, "", 0, kIntegers},
    {"spmv.csc", "x:r[columns] y:u[rows]", 2, "", 0, kIntegers},
};
const FamilyRegistrar spmv("spmv", make, kDeclared);

}  // namespace
}  // namespace memkern
