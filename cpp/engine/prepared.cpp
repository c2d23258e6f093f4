#include "engine/prepared.hpp"

#include <algorithm>
#include <utility>

#include "core/errors.hpp"
#include "core/sampler.hpp"

namespace memkern {
namespace {

void check_invocations(std::int64_t invocations) {
  if (invocations < 1) throw InputError("the number of invocations must be at least 1");
}

// Not every family has kernels for the device.
void check_runs_on(const Device& device, const std::string& kernel) {
  const std::string family = kernel.substr(0, kernel.find('.') + 1);
  const auto& known = device.entries();
  const auto of_family = [&](const DeviceEntry& e) {
    return std::string(e.kernel).starts_with(family);
  };
  if (std::none_of(known.begin(), known.end(), of_family)) {
    throw InputError("kernel '" + kernel + "' does not run on " + device.name());
  }
}

}  // namespace

Prepared::Prepared(const Request& request)
    : team_(request.device == nullptr ? TeamRequest{request.threads, request.pin}
                                      : TeamRequest{1, "none"}),
      kernel_(request.kernel) {
  const Placement placement{parse_pages(request.pages), parse_numa(request.numa), request.offset_B,
                            request.device, std::max(request.threads, 1)};
  if (request.device != nullptr) check_runs_on(*request.device, kernel_);
  problem_ =
      make_problem(kernel_, request.dtype, request.index_dtype, request.inputs, team_, placement);
  if (request.inputs.integers.contains("split_at") && !request.exchange) {
    throw InputError("split_at is for cases that exchange values");
  }
  problem_->set_exchanged(request.exchanged);
  runner_ = make_runner(team_, *problem_, request);
  problem_->set_seed(request.seed);
  problem_->fill(false);
}

void Prepared::select(const std::string& variant, const std::string& isa) {
  if (runner_->select(variant, isa)) return;
  throw InputError("kernel '" + kernel_ + "' has no variant '" + variant + "' for " + isa +
                   " on this machine with these inputs");
}

double Prepared::run(std::int64_t invocations) {
  check_invocations(invocations);
  problem_->mark_written();
  return runner_->sample(invocations, {}, nullptr);
}

void Prepared::check_range(Range range) const {
  if (range.begin >= 0 && range.end > range.begin && range.end <= problem_->count()) return;
  throw InputError("the range " + std::to_string(range.begin) + " to " + std::to_string(range.end) +
                   " is empty or outside 0 to " + std::to_string(problem_->count()));
}

double Prepared::run_range(std::int64_t begin, std::int64_t end) {
  check_range({begin, end});
  problem_->mark_written();
  return runner_->run_range({begin, end});
}

Prepared::Sampling::Sampling(Prepared& prepared, std::int64_t invocations, double end,
                             std::vector<EventCode> events, bool probes, bool warms_up, bool cores)
    : prepared_(prepared), invocations_(invocations), end_(end), warms_up_(warms_up) {
  check_invocations(invocations);
  watch_ = prepared.runner_->watch(probes, cores);
  if (watch_ && watch_->monitor) monitor_ = &*watch_->monitor;
  if (events.empty()) return;
  if (!watch_) throw InputError("events are counted on processors only");
  counters_ = std::make_unique<Counters>(prepared.team_, std::move(events));
}

bool Prepared::Sampling::sample(double& seconds, std::span<double> per_step, Conditions& conditions,
                                const std::function<bool()>& start, std::span<Count> counts,
                                std::optional<Range> part, double* moved_B) {
  conditions = {};
  Runner& runner = *prepared_.runner_;
  if (warms_up_ && !part && first_) warm_up();
  runner.flush();
  if (start && !start()) return false;
  prepared_.problem_->mark_written();
  if (part) {
    seconds = runner.run_range(*part);
  } else {
    const auto invocations = static_cast<double>(invocations_);
    std::fill(per_step.begin(), per_step.end(), 0.0);
    const double before_B = prepared_.problem_->moved_B();
    seconds = runner.sample(invocations_, per_step, counters_.get()) / invocations;
    if (moved_B != nullptr) *moved_B = (prepared_.problem_->moved_B() - before_B) / invocations;
    if (counters_) counters_->sum(counts);
    for (double& step : per_step) step /= invocations;
  }
  if (monitor_ != nullptr) monitor_->sample_ended(conditions);
  prepared_.sampled_s_ = now();
  return true;
}

void Prepared::Sampling::warm_up() {
  const double begin_s = now();
  prepared_.problem_->mark_written();
  prepared_.untimed_ += prepared_.runner_->warm_up(begin_s - prepared_.sampled_s_, end_ - begin_s);
  const double spent_s = now() - begin_s;
  prepared_.untimed_s_ += spent_s;
  end_ += spent_s;
  if (monitor_ != nullptr) monitor_->skip();
  first_ = false;
}

void Prepared::Sampling::finish() {
  if (monitor_ != nullptr) monitor_->finish();
}

}  // namespace memkern
