#include "engine/runner.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/buffer.hpp"
#include "core/clock.hpp"
#include "core/errors.hpp"
#include "core/flusher.hpp"
#include "core/sampler.hpp"
#include "core/topology.hpp"

namespace memkern {
namespace {

// A variant for one instruction set, with a step for each kernel of an invocation.
template <class S>
struct Candidate {
  std::string variant;
  std::string isa;
  std::vector<S> steps;
};

// The entries of a table that a case can run. `isa_of` returns the instruction set of an entry,
// empty if this machine does not support it; `step_of` makes a step of an entry and its arguments.
template <class S, class E, class IsaOf, class StepOf>
std::vector<Candidate<S>> candidates_of(const std::vector<E>& table, const Problem& problem,
                                        const Request& request, const IsaOf& isa_of,
                                        const StepOf& step_of) {
  std::vector<Stage> stages = problem.stages();
  if (stages.empty()) stages.push_back({request.kernel, problem.args()});
  std::vector<Candidate<S>> found;
  std::set<int> unrolls;
  std::set<std::string> template_variants;
  for (const E& e : table) {
    if (stages.front().kernel != e.kernel || request.dtype != e.dtype ||
        problem.index_dtype() != e.index) {
      continue;
    }
    const std::string isa = isa_of(e);
    if (isa.empty() || !problem.runs({static_cast<const Entry&>(e), isa})) continue;
    template_variants.insert(e.template_variant);
    if (request.template_variant != e.template_variant) continue;
    unrolls.insert(e.unroll);
    if (e.unroll != request.unroll) continue;
    Candidate<S> candidate{e.variant, isa, {}};
    for (const Stage& stage : stages) {
      const auto same = [&](const E& other) {
        return stage.kernel == other.kernel && std::string(e.variant) == other.variant &&
               isa == isa_of(other) && std::string(e.dtype) == other.dtype &&
               std::string(e.index) == other.index && e.unroll == other.unroll &&
               std::string(e.template_variant) == other.template_variant;
      };
      const auto entry = std::find_if(table.begin(), table.end(), same);
      if (entry != table.end()) candidate.steps.push_back(step_of(*entry, stage.args));
    }
    if (candidate.steps.size() == stages.size()) found.push_back(std::move(candidate));
  }
  if (!found.empty()) return found;
  const std::string kernel = "kernel '" + request.kernel + "'";
  if (!unrolls.empty()) {
    std::string known;
    for (const int u : unrolls) known += (known.empty() ? "" : ", ") + std::to_string(u);
    throw InputError(kernel + " is not built with unroll " + std::to_string(request.unroll) +
                     ": there are " + known);
  }
  if (!template_variants.empty()) {
    std::string known;
    for (const std::string& name : template_variants) {
      known += (known.empty() ? "" : ", ") + name;
    }
    throw InputError(kernel + " is not built as '" + request.template_variant + "' for " +
                     request.dtype + " values: there are " + known);
  }
  throw InputError(kernel + " has no variant for " + request.dtype + " values" +
                   (request.index_dtype.empty() ? "" : " and " + request.index_dtype + " indices") +
                   (request.device == nullptr ? "" : " on " + request.device->name()));
}

template <class S>
class RunnerOf : public Runner {
 public:
  std::vector<std::pair<std::string, std::string>> candidates() const override {
    std::vector<std::pair<std::string, std::string>> all;
    for (const Candidate<S>& c : candidates_) all.emplace_back(c.variant, c.isa);
    return all;
  }
  bool select(const std::string& variant, const std::string& isa) override {
    for (const Candidate<S>& c : candidates_) {
      if (variant != c.variant || isa != c.isa) continue;
      selected_ = &c;
      return true;
    }
    return false;
  }
  std::size_t steps() const override { return selected_->steps.size(); }
  Obtained obtained() const override {
    Obtained o;
    o.variant = selected_->variant;
    o.isa = selected_->isa;
    return o;
  }

 protected:
  void set_candidates(std::vector<Candidate<S>> candidates) {
    candidates_ = std::move(candidates);
    selected_ = &candidates_.front();
  }
  const std::vector<S>& selected() const { return selected_->steps; }

 private:
  std::vector<Candidate<S>> candidates_;
  const Candidate<S>* selected_ = nullptr;
};

class HostRunner : public RunnerOf<Step> {
  // An idle core needs 2 ms. While other programs use the caches, these adapt to them, and again to
  // a kernel within a tenth of that time: at most 6 ms in private caches, 20 ms in a shared one.
  static constexpr double kWarmShare = 0.25;
  static constexpr double kPrivateWarm_s = 0.006;
  static constexpr double kSharedWarm_s = 0.02;
  // The warm-up ends earlier after this number of parts of this length whose times per invocation
  // agree with the earlier ones within this share.
  static constexpr int kSteady = 3;
  static constexpr double kPart_s = 1e-4;
  static constexpr double kFaster = 0.98;
  // Of arrays larger than this multiple of the last cache, no data remain in it.
  static constexpr std::int64_t kWarmCaches = 2;

 public:
  HostRunner(const Team& team, const Problem& problem, const Request& request)
      : team_(team),
        sampler_(team, parse_schedule(request.schedule, request.chunk),
                 parse_repetition(request.repetition)),
        boundaries_(problem.boundaries()),
        exchange_(request.exchange),
        warm_s_(warm_s(problem.footprint_B(), caches_B(request))),
        flush_arena_(team, Placement{}) {
    if (problem.needs_every_worker() && (request.schedule != "static" || request.chunk != 0)) {
      throw InputError("the workers of '" + request.kernel +
                       "' wait for each other: use schedule 'static' without chunk");
    }
    if (problem.needs_finish() && request.repetition == "free") {
      throw InputError("kernel '" + request.kernel +
                       "' is finished after each invocation: use repetition 'barrier'");
    }
    const std::int64_t* boundaries = boundaries_.empty() ? nullptr : boundaries_.data();
    const std::vector<std::string> isas = supported_isas();
    const auto isa_of = [&](const RegisteredEntry& e) {
      return std::find(isas.begin(), isas.end(), e.isa) == isas.end() ? std::string() : e.isa;
    };
    const auto step_of = [&](const RegisteredEntry& e, const void* args) {
      return Step{e.body, e.finish, args, problem.count(), boundaries};
    };
    auto found = candidates_of<Step>(registered_entries(), problem, request, isa_of, step_of);
    // Widest instruction sets first.
    const auto width = [&](const Candidate<Step>& c) {
      return std::find(isas.begin(), isas.end(), c.isa) - isas.begin();
    };
    std::stable_sort(found.begin(), found.end(),
                     [&](const auto& a, const auto& b) { return width(a) < width(b); });
    set_candidates(std::move(found));
    if (exchange_) prepare_exchange(problem, request);
    if (!request.flush) return;
    const std::int64_t bytes = 2 * std::max<std::int64_t>(caches_B(request), 1 << 20);
    flush_arena_.request(bytes, 1);
    flush_arena_.commit();
    flusher_.emplace(team_, flush_arena_[0]);
  }

  std::size_t steps() const override { return exchange_ ? sequence_.size() : RunnerOf::steps(); }
  bool select(const std::string& variant, const std::string& isa) override {
    if (!RunnerOf::select(variant, isa)) return false;
    if (exchange_) set_sequence();
    return true;
  }
  double sample(std::int64_t invocations, std::span<double> per_step, Counters* counters) override {
    const Team::Session session(team_);
    return sampler_.sample(exchange_ ? sequence_ : selected(), invocations, per_step, counters);
  }

  // Without an exchange.
  double run_range(Range range) override {
    const Team::Session session(team_);
    parts_.clear();
    for (const Step& whole : selected()) parts_.push_back({range.begin, &whole});
    std::vector<Step> steps;
    for (const Part& part : parts_) {
      steps.push_back({run_part, part.whole->finish == nullptr ? nullptr : finish_part, &part,
                       range.end - range.begin, nullptr});
    }
    return sampler_.sample(steps, 1);
  }

  void flush() override {
    if (flusher_) flusher_->flush();
  }
  std::int64_t warm_up(double idle_s, double most_s) override {
    // Ranks that exchange values are not synchronised yet: another rank may have failed.
    if (flusher_ || exchange_) return 0;
    double begin_s = now();
    const double end_s = begin_s + std::min({kWarmShare * idle_s, warm_s_, most_s});
    double shortest_s = std::numeric_limits<double>::infinity();
    std::int64_t invocations = 0;
    for (int steady = 0; begin_s < end_s && steady < kSteady;) {
      std::int64_t some = 0;
      double part_s = 0.0;
      for (const double whole_s = std::min(kPart_s, end_s - begin_s); part_s < whole_s; ++some) {
        sample(1, {}, nullptr);
        part_s = now() - begin_s;
      }
      const double each_s = part_s / static_cast<double>(some);
      steady = each_s < kFaster * shortest_s ? 0 : steady + 1;
      shortest_s = std::min(shortest_s, each_s);
      invocations += some;
      begin_s += part_s;
    }
    return invocations;
  }
  std::unique_ptr<Watch> watch(bool probes, bool cores) override {
    return std::make_unique<Watch>(team_, probes, cores);
  }
  Obtained obtained() const override {
    Obtained o = RunnerOf::obtained();
    o.threads = team_.size();
    o.pin = team_.pin_obtained();
    o.pin_refused = team_.pin_refused();
    o.shared_units = team_.shared_units();
    o.vector_B = vector_size(o.isa);
    return o;
  }

 private:
  struct Part {
    std::int64_t begin;
    const Step* whole;
  };
  static std::int64_t caches_B(const Request& request) {
    return request.caches_B > 0 ? request.caches_B : Topology::instance().last_level_cache_B();
  }
  // The longest warm-up before the first sample for data of this size.
  double warm_s(std::int64_t footprint_B, std::int64_t caches_B) const {
    const Topology& machine = Topology::instance();
    if (footprint_B > kWarmCaches * caches_B) return 0.0;
    std::int64_t private_B = 0;
    for (const Cache& cache : machine.caches()) {
      if (cache.instances >= machine.cores()) private_B = std::max(private_B, cache.size_B);
    }
    return footprint_B <= private_B * team_.size() ? kPrivateWarm_s : kSharedWarm_s;
  }
  static void run_part(const void* p, Range range, int worker) {
    const Part& part = *static_cast<const Part*>(p);
    part.whole->body(part.whole->args, {part.begin + range.begin, part.begin + range.end}, worker);
  }
  static void finish_part(const void* p, int workers) {
    const Step& whole = *static_cast<const Part*>(p)->whole;
    whole.finish(whole.args, workers);
  }

  // A part of the kernel's iterations, or one of pack() and unpack().
  struct Phase {
    Part part;
    Boundaries boundaries;  // relative to the part's beginning
    Exchange* exchange;
  };
  static const Phase& phase_of(const void* p) { return *static_cast<const Phase*>(p); }
  static void iterate(const void* p, Range range, int worker) {
    run_part(&phase_of(p).part, range, worker);
  }
  static void pack(const void* p, Range range, int) { phase_of(p).exchange->pack(range); }
  static void unpack(const void* p, Range range, int) { phase_of(p).exchange->unpack(range); }
  static void start(const void* p, int) { phase_of(p).exchange->start(); }
  static void receive(const void* p, int) { phase_of(p).exchange->finish(); }
  static void start_and_receive(const void* p, int workers) {
    start(p, workers);
    receive(p, workers);
  }

  void prepare_exchange(const Problem& problem, const Request& request) {
    const std::string what = "ranks exchange values in each invocation of '" + request.kernel + "'";
    if (request.repetition == "free") throw InputError(what + ": use repetition 'barrier'");
    if (!problem.stages().empty() || selected().front().finish != nullptr) {
      throw InputError("ranks can't exchange the values of kernel '" + request.kernel + "'");
    }
    const Array& a = problem.array(request.exchanged);
    if (a.rows > 1) throw InputError(what + ": array '" + a.name + "' has a row for each worker");
    exchange_->bind(dtype_name(a.type), a.data, a.columns, a.data, a.columns);
    split_ = request.inputs.split(problem.count());
    set_sequence();
  }

  // The steps of an invocation with an exchange. Elements that are added are results of the kernel
  // on other ranks: the exchange follows the first part of its iterations. Elements that replace
  // others are inputs of the kernel: the exchange precedes the second part. If the iterations are
  // split, the other part is executed before this rank waits for its neighbours.
  void set_sequence() {
    const Step& kernel = selected().front();
    const std::int64_t split = split_.value_or(kernel.count);
    phases_.clear();
    add_phase(0, 0);
    if (split_) add_phase(split, std::ssize(boundaries_) / 2);
    const auto iterations = [&](std::size_t k, Finish finish) {
      const auto& [part, boundaries, exchange] = phases_[k];
      const std::int64_t end = k == 0 ? split : kernel.count;
      return Step{iterate, finish, &phases_[k], end - part.begin,
                  boundaries.empty() ? nullptr : boundaries.data()};
    };
    const Phase* any = phases_.data();
    const Step send{pack, split_ ? start : start_and_receive, any, exchange_->packed(), nullptr};
    const Step store{unpack, nullptr, any, exchange_->unpacked(), nullptr};
    if (exchange_->adds() && split_) {
      sequence_ = {iterations(0, nullptr), send, iterations(1, receive), store};
    } else if (exchange_->adds()) {
      sequence_ = {iterations(0, nullptr), send, store};
    } else if (split_) {
      sequence_ = {send, iterations(0, receive), store, iterations(1, nullptr)};
    } else {
      sequence_ = {send, store, iterations(0, nullptr)};
    }
    std::erase_if(sequence_, [](const Step& s) { return s.body == unpack && s.count == 0; });
  }

  // `from` is the first of its boundaries, if there are any.
  void add_phase(std::int64_t begin, std::ptrdiff_t from) {
    Boundaries boundaries;
    if (!boundaries_.empty()) {
      const auto first = boundaries_.begin() + from;
      const auto workers = split_ ? std::ssize(boundaries_) / 2 : std::ssize(boundaries_) - 1;
      boundaries.assign(first, first + workers + 1);
      for (std::int64_t& boundary : boundaries) boundary -= begin;
    }
    phases_.push_back({{begin, &selected().front()}, std::move(boundaries), exchange_.get()});
  }

  const Team& team_;
  Sampler sampler_;
  Boundaries boundaries_;
  std::vector<Part> parts_;
  std::shared_ptr<Exchange> exchange_;
  std::optional<std::int64_t> split_;
  std::vector<Phase> phases_;
  std::vector<Step> sequence_;
  double warm_s_;
  Arena flush_arena_;
  std::optional<CacheFlusher> flusher_;
};

class DeviceRunner : public RunnerOf<DeviceStep> {
 public:
  DeviceRunner(const Team& team, const Problem& problem, const Request& request)
      : device_(*request.device),
        timer_(request.timer),
        flush_arena_(team, Placement{{}, {}, 0, request.device, 1}),
        threads_requested_(request.threads) {
    if (timer_ == Timer::Graph && !problem.stages().empty()) {
      throw InputError("timer 'graph' times the kernels of '" + request.kernel +
                       "' only together: use host or events");
    }
    if (request.block_threads < 0 || request.block_threads > device_.max_threads()) {
      throw InputError("block_threads must be from 1 to " + std::to_string(device_.max_threads()) +
                       ", not " + std::to_string(request.block_threads));
    }
    const auto isa_of = [&](const DeviceEntry&) { return device_.isa(); };
    const auto step_of = [&](const DeviceEntry& e, const void* args) {
      const int threads = request.block_threads == 0 ? e.threads : request.block_threads;
      return DeviceStep{e.launch, args,      {0, problem.count()},
                        threads,  e.prepare, request.block_shared_B};
    };
    set_candidates(candidates_of<DeviceStep>(device_.entries(), problem, request, isa_of, step_of));
    if (!request.flush) return;
    flush_B_ = 2 * std::max<std::int64_t>(device_.cache_B(), 1 << 20);
    for (int k = 0; k < 2; ++k) flush_arena_.request(flush_B_, 1);
    flush_arena_.commit();
    for (std::size_t k = 0; k < 2; ++k) flush_arena_[k].content.clear();
  }

  // Steps that the device can't run are refused here, not in a sample.
  bool select(const std::string& variant, const std::string& isa) override {
    if (!RunnerOf::select(variant, isa)) return false;
    sequence();
    return true;
  }
  double sample(std::int64_t invocations, std::span<double> per_step, Counters*) override {
    return sequence().sample(invocations, per_step.empty() ? nullptr : per_step.data());
  }
  double run_range(Range range) override {
    std::vector<DeviceStep> steps = selected();
    for (DeviceStep& step : steps) step.range = range;
    return device_.sample(steps, 1, Timer::Host, nullptr);
  }
  void flush() override {
    if (flush_B_ > 0) device_.flush(flush_arena_[0].data(), flush_arena_[1].data(), flush_B_);
  }
  std::unique_ptr<Watch> watch(bool, bool) override { return nullptr; }
  Obtained obtained() const override {
    Obtained o = RunnerOf::obtained();
    o.threads = threads_requested_ > 0 ? threads_requested_ / device_.ranks() : device_.units();
    o.block_threads = selected().front().threads;
    o.pin = "none";
    return o;
  }

 private:
  // Stored for every candidate, since trials alternate between them and a sequence keeps its
  // graphs: the first replay of a graph takes longer than later ones.
  Sequence& sequence() {
    std::unique_ptr<Sequence>& kept = sequences_[&selected()];
    if (kept == nullptr) kept = device_.prepare(selected(), timer_);
    return *kept;
  }

  Device& device_;
  Timer timer_;
  Arena flush_arena_;
  std::int64_t flush_B_ = 0;  // 0 without flushing
  int threads_requested_;
  std::map<const std::vector<DeviceStep>*, std::unique_ptr<Sequence>> sequences_;  // by the steps
};

}  // namespace

Timer parse_timer(const std::string& text) {
  if (text == "host") return Timer::Host;
  if (text == "events") return Timer::Events;
  if (text == "graph") return Timer::Graph;
  throw InputError("timer '" + text + "' is not host, events or graph");
}

std::unique_ptr<Runner> make_runner(const Team& team, const Problem& problem,
                                    const Request& request) {
  if (request.device != nullptr && request.exchange) {
    throw InputError("kernels on " + request.device->name() + " exchange no values between ranks");
  }
  if (request.device != nullptr) return std::make_unique<DeviceRunner>(team, problem, request);
  return std::make_unique<HostRunner>(team, problem, request);
}

}  // namespace memkern
