// Prepares cases of latency: a ring through the lines of a buffer, the rows of the traffic, the
// words that two workers exchange, and the ends of chains in shared memory.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/device_memory.hpp"
#include "core/errors.hpp"
#include "engine/problem.hpp"
#include "families/latency/args.hpp"

namespace memkern {
namespace {

constexpr std::int64_t kWord_B = sizeof(std::uint64_t);
constexpr std::int64_t kMaxLine_B = std::int64_t{1} << 20;

std::int64_t line_of(const Inputs& inputs) {
  const std::int64_t line_B = inputs.integer("line_B");
  if (line_B % kWord_B != 0) {
    throw InputError("line_B must be a multiple of 8, not " + std::to_string(line_B));
  }
  return line_B;
}

// The ring is not an array that a caller can write, because chains follow the addresses in it.
class ChaseProblem : public Problem {
 public:
  ChaseProblem(const std::string& kernel, const Inputs& inputs, const Team& team,
               const Placement& placement, int chasers)
      : Problem(declaration_of(kernel), team, placement),
        chasers_(chasers),
        line_B_(line_of(inputs)) {
    chains_ = inputs.integer("chains");
    const std::int64_t steps = inputs.integer("steps");
    count_ = checked_mul(checked_mul(steps, chains_, "steps times chains"), chasers, "steps");
    if (inputs.integer("workers") != workers()) {
      throw InputError("the case is for " + std::to_string(inputs.integer("workers")) +
                       " workers but would run with " + std::to_string(workers()) +
                       ": build it with the number of threads that it will run with");
    }
    const std::int64_t lines = inputs.integer("lines");
    order_ = inputs.copy("order");
    for (const std::int64_t line : order_) {
      if (line >= 0 && line < lines) continue;
      throw InputError("order has " + std::to_string(line) + ", outside 0 to " +
                       std::to_string(lines - 1));
    }
    const std::int64_t words = checked_mul(lines, line_B_ / kWord_B, "lines times line_B");
    add_array("ends", DType::U64, ChaseArgs::kColumns, true);
    add_indices("ring", {nullptr, words}, DType::I64, 0, words);
  }

  const void* args() const override { return &chase_; }
  std::int64_t count() const override { return count_; }
  std::string index_dtype() const override { return "int64"; }

 protected:
  std::int64_t line_B() const { return line_B_; }

  // After commit().
  void link() {
    std::byte* ring = indices("ring");
    // On a device, the whole ring is written there; it contains addresses of the device.
    std::vector<std::byte> copy;
    if (device() != nullptr) copy.resize(static_cast<std::size_t>(ring_B()));
    std::byte* written = device() == nullptr ? ring : copy.data();
    const std::int64_t n = std::max<std::int64_t>(std::ssize(order_), 1);
    const auto line_at = [&](std::int64_t i) {
      return ring + order_[static_cast<std::size_t>(i % n)] * line_B_;
    };
    for (std::int64_t i = 0; i < n; ++i) {
      const Chain next{line_at(i + 1)};
      std::memcpy(written + (line_at(i) - ring), &next, sizeof next);
    }
    if (device() != nullptr) device()->write(ring, copy.data(), ring_B());
    // All chains of all workers begin equally far apart.
    std::vector<Chain> starts;
    for (std::int64_t w = 0; w < workers(); ++w) {
      for (std::int64_t j = 0; j < ChaseArgs::kMaxChains; ++j) {
        const std::int64_t chain = w * chains_ + std::min(j, chains_ - 1);
        // A long ring times many chains may not fit.
        const double share = static_cast<double>(chain) / static_cast<double>(chasers_ * chains_);
        starts.push_back({line_at(static_cast<std::int64_t>(share * static_cast<double>(n)))});
      }
    }
    chase_.ring = ring;
    chase_.chains = own(starts);
    chase_.ends = reinterpret_cast<std::uint64_t*>(array("ends").data);
    chase_.ends_stride = array("ends").row_stride;
    chase_.workers = workers();
    order_ = {};
  }
  const ChaseArgs& chase() const { return chase_; }
  std::int64_t ring_B() const { return any_array("ring").columns * kWord_B; }

 private:
  int chasers_;
  std::int64_t line_B_;
  std::int64_t chains_ = 1;
  std::int64_t count_ = 1;
  std::vector<std::int64_t> order_;
  ChaseArgs chase_;
};

class PlainChase : public ChaseProblem {
 public:
  PlainChase(const std::string& kernel, const Inputs& inputs, const Team& team,
             const Placement& placement)
      : ChaseProblem(kernel, inputs, team, placement,
                     placement.device == nullptr ? team.size() : placement.workers),
        chains_(std::to_string(inputs.integer("chains"))) {
    commit();
    link();
  }
  bool runs(const RegisteredEntry& entry) const override {
    return chains_ == entry.template_variant;
  }

 private:
  std::string chains_;
};

class BanksProblem : public Problem {
 public:
  BanksProblem(const std::string& kernel, const Inputs& inputs, const Team& team,
               const Placement& placement)
      : Problem(declaration_of(kernel), team, placement) {
    args_.stride = inputs.integer("stride");
    count_ = inputs.integer("steps");
    args_.workers = inputs.integer("workers");
    if (args_.workers != workers()) {
      throw InputError("the case is for " + std::to_string(args_.workers) +
                       " workers but would run with " + std::to_string(workers()) +
                       ": build it with the number of threads that it will run with");
    }
    add_array("ends", DType::U64, BanksArgs::kColumns, true);
    commit();
    args_.ends = reinterpret_cast<std::uint64_t*>(array("ends").data);
    args_.ends_stride = array("ends").row_stride;
  }
  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }

 private:
  BanksArgs args_;
  std::int64_t count_ = 1;
};

class LoadedProblem : public ChaseProblem {
 public:
  LoadedProblem(const std::string& kernel, const Inputs& inputs, const Team& team,
                const Placement& placement)
      : ChaseProblem(kernel, inputs, team, placement, 1) {
    if (inputs.integer("chains") != 1) {
      throw InputError("chains must be 1 beside traffic, not " +
                       std::to_string(inputs.integer("chains")));
    }
    args_.line_B = line_B();
    args_.lines = inputs.integer("traffic_lines");
    args_.loads = inputs.integer("loads");
    args_.pause = inputs.integer("pause");
    for (const auto& [what, bytes] :
         {std::pair{"line_B", line_B()}, std::pair{"offset", placement.offset_B}}) {
      if (bytes % kVector_B == 0) continue;
      throw InputError(std::string(what) + " must be a multiple of " + std::to_string(kVector_B) +
                       " bytes beside traffic, not " + std::to_string(bytes));
    }
    const std::int64_t words =
        checked_mul(args_.lines, line_B() / kWord_B, "traffic_lines times line_B");
    add_array("source", DType::U64, words, true);
    add_array("target", DType::U64, words, true);
    add_array("tally", DType::U64, LoadedArgs::kColumns, true);
    commit();
    link();
    args_.chase = chase();
    args_.source = array("source").data;
    args_.target = array("target").data;
    args_.row_stride_B = array("source").row_stride * kWord_B;
    args_.places = own(std::vector<std::int64_t>(static_cast<std::size_t>(2 * workers()), 0));
    args_.tally = reinterpret_cast<std::uint64_t*>(array("tally").data);
    args_.tally_stride = array("tally").row_stride;
    args_.finished = &finished_;
  }
  const void* args() const override { return &args_; }
  double moved_B() const override {
    std::uint64_t lines = 0;
    for (std::int64_t w = 1; w < workers(); ++w) {
      const std::uint64_t* tally = args_.tally + w * args_.tally_stride;
      lines += tally[LoadedArgs::kLoaded] + tally[LoadedArgs::kStored];
    }
    return static_cast<double>(lines) * static_cast<double>(args_.line_B);
  }
  Boundaries boundaries() const override {
    Boundaries all(static_cast<std::size_t>(workers()) + 1, count());
    all.front() = 0;
    return all;
  }
  bool needs_every_worker() const override { return true; }
  bool needs_finish() const override { return true; }

 private:
  static constexpr std::int64_t kVector_B = 64;  // the widest that the traffic is moved in
  LoadedArgs args_;
  std::atomic<bool> finished_{false};
};

class PingPongProblem : public Problem {
 public:
  PingPongProblem(const std::string& kernel, const Inputs& inputs, const Team& team,
                  const Placement& placement)
      : Problem(declaration_of(kernel), team, placement) {
    if (workers() != 2) {
      throw InputError("two workers exchange a line, not " + std::to_string(workers()));
    }
    const std::int64_t line_B = line_of(inputs);
    const std::int64_t lines = inputs.integer("lines");
    args_.turns = inputs.integer("turns");
    // Prefetchers of pairs of lines do not fetch the line after the next.
    const std::int64_t apart = 4 * line_B / kWord_B;
    add_array("tally", DType::U64, PingPongArgs::kColumns, true);
    // Worker 0 touches all of a page that no other pair has used: the time depends on the position
    // of a line and on the core that touched it first.
    add_indices("words", {nullptr, 2 * apart}, DType::I64, 0, 2 * apart, {0, 2 * apart, 2 * apart},
                0, false);
    commit();
    auto* words = reinterpret_cast<std::uint64_t*>(indices("words"));
    std::fill_n(words, 2 * apart, 0);
    args_.words[0] = words;
    args_.words[1] = words + (lines == 2 ? apart : 0);
    std::vector<std::uint64_t> next(std::size_t{2} * PingPongArgs::kNextStride, 0);
    next[PingPongArgs::kNextStride] = 1;
    args_.next = own(next);
    args_.tally = reinterpret_cast<std::uint64_t*>(array("tally").data);
    args_.tally_stride = array("tally").row_stride;
  }
  const void* args() const override { return &args_; }
  std::int64_t count() const override { return args_.turns; }
  bool needs_every_worker() const override { return true; }
  // Two words can't be swapped as one.
  bool runs(const RegisteredEntry& entry) const override {
    return args_.words[0] == args_.words[1] || std::string(entry.template_variant) == "load";
  }

 private:
  PingPongArgs args_;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string& index_dtype, const Inputs& inputs,
                              const Team& team, const Placement& placement) {
  if (kernel == "latency.banks") {
    if (placement.device == nullptr) {
      throw InputError("kernel '" + kernel +
                       "' reads the shared memory of a GPU: give device cuda");
    }
    return std::make_unique<BanksProblem>(kernel, inputs, team, placement);
  }
  const bool ping_pong = kernel == "latency.ping_pong";
  if (dtype != "uint64" || index_dtype != (ping_pong ? "" : "int64")) {
    throw InputError("kernel '" + kernel + "' has uint64 words" +
                     (ping_pong ? "" : " and int64 indices"));
  }
  if (placement.device != nullptr && kernel != "latency.chase") {
    throw InputError("kernel '" + kernel + "' does not run on " + placement.device->name());
  }
  if (ping_pong) return std::make_unique<PingPongProblem>(kernel, inputs, team, placement);
  if (kernel == "latency.loaded") {
    return std::make_unique<LoadedProblem>(kernel, inputs, team, placement);
  }
  return std::make_unique<PlainChase>(kernel, inputs, team, placement);
}

constexpr DeclaredInteger kLine = {"line_B", kWord_B, kMaxLine_B};
constexpr DeclaredInteger kChains = {"chains", 1, ChaseArgs::kMaxChains};
constexpr DeclaredInteger kChase[] = {kLine, {"lines", 1}, kChains, {"steps", 1}, {"workers", 1}};
constexpr DeclaredInteger kLoaded[] = {kLine,          {"lines", 1},
                                       kChains,        {"steps", 1},
                                       {"workers", 1}, {"traffic_lines", LoadedArgs::kGroup},
                                       {"pause", 0},   {"loads", 0, LoadedArgs::kGroup}};
constexpr DeclaredInteger kPingPong[] = {kLine, {"lines", 1, 2}, {"turns", 1}};
constexpr DeclaredInteger kBanks[] = {
    {"stride", 0, BanksArgs::kMaxStride}, {"steps", 1}, {"workers", 1}};
constexpr Declaration kDeclared[] = {
    {"latency.chase", "ends:u[workers, most chains + 1]", 0, "", 0, kChase},
    {"latency.loaded",
     "ends:u[workers, most chains + 1] source:r[workers, traffic words] "
     "target:w[workers, traffic words] tally:u[workers, sums]",
     0, "", 0, kLoaded},
    {"latency.ping_pong", "tally:u[2, 2]", 0, "", 0, kPingPong},
    {"latency.banks", "ends:w[workers, threads]", 0, "", 0, kBanks},
};
const FamilyRegistrar latency("latency", make, kDeclared);

}  // namespace
}  // namespace memkern
