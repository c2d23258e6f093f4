#include "core/sampler.hpp"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "core/counters.hpp"
#include "core/errors.hpp"
#include "core/parts.hpp"

namespace memkern {
namespace {

void omp_wait() {
#pragma omp barrier
}

// The last worker to arrive releases the others by incrementing the round.
class SpinBarrier {
 public:
  explicit SpinBarrier(int workers) : workers_(workers) {}
  void wait() {
    const int round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == workers_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    // After many spins, yield: another worker may be waiting for this processor.
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins < kMaxSpins) {
        pause();
      } else {
        sched_yield();
      }
    }
  }

 private:
  static constexpr int kMaxSpins = 10000;  // a fraction of a millisecond
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  // 128 bytes, because prefetchers may fetch cache lines in pairs.
  alignas(128) std::atomic<int> arrived_{0};
  alignas(128) std::atomic<int> round_{0};
  int workers_;
};

}  // namespace

double now() {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_start).count();
}

double clock_tick() {
  static const double tick = [] {
    using Clock = std::chrono::steady_clock;
    auto smallest = Clock::duration::max();
    for (int i = 0; i < 1000; ++i) {
      const auto start = Clock::now();
      auto next = start;
      while (next == start) next = Clock::now();
      smallest = std::min(smallest, next - start);
    }
    return std::chrono::duration<double>(smallest).count();
  }();
  return tick;
}

Repetition parse_repetition(const std::string& text) {
  if (text == "fork") return Repetition::Fork;
  if (text == "barrier") return Repetition::Barrier;
  if (text == "spin") return Repetition::Spin;
  if (text == "free") return Repetition::Free;
  throw InputError("repetition '" + text + "' is not fork, barrier, spin or free");
}

Schedule parse_schedule(const std::string& kind, std::int64_t chunk) {
  if (chunk < 0) throw InputError("chunk must not be negative: 0 gives each worker one range");
  if (kind == "static") return {Schedule::Kind::Static, chunk};
  if (kind == "dynamic") return {Schedule::Kind::Dynamic, std::max<std::int64_t>(chunk, 1)};
  throw InputError("schedule '" + kind + "' is not static or dynamic");
}

Range part_of(const Step& step, int workers, int worker) {
  if (step.boundaries == nullptr) return contiguous_part(step.count, workers, worker);
  return {step.boundaries[worker], step.boundaries[worker + 1]};
}

Sampler::Sampler(const Team& team, Schedule schedule, Repetition repetition)
    : team_(team), schedule_(schedule), repetition_(repetition) {
  if (repetition == Repetition::Free && schedule.kind == Schedule::Kind::Dynamic) {
    throw InputError(
        "repetition 'free' has no barrier at which a dynamic schedule could start "
        "again: use schedule 'static'");
  }
}

void Sampler::work(const Step& step, int worker, int workers) {
  if (schedule_.kind == Schedule::Kind::Dynamic) {
    const std::int64_t chunk = std::min(schedule_.chunk, step.count);
    while (true) {
      const std::int64_t begin = next_.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= step.count) return;
      step.body(step.args, {begin, begin + std::min(chunk, step.count - begin)}, worker);
    }
  }
  if (schedule_.chunk == 0) {
    step.body(step.args, part_of(step, workers, worker), worker);
    return;
  }
  const std::int64_t chunks = (step.count - 1) / schedule_.chunk + 1;
  for (std::int64_t c = worker; c < chunks; c += workers) {
    const std::int64_t begin = c * schedule_.chunk;
    step.body(step.args, {begin, begin + std::min(schedule_.chunk, step.count - begin)}, worker);
  }
}

double Sampler::sample_fork(std::span<const Step> steps, std::int64_t invocations,
                            std::span<double> per_step) {
  const int workers = team_.size();
  if (counters_ != nullptr) {
#pragma omp parallel num_threads(workers)
    counters_->begin(omp_get_thread_num());
  }
  const double start = now();
  double lap = start;
  for (std::int64_t k = 0; k < invocations; ++k) {
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const Step& step = steps[s];
      next_.store(0, std::memory_order_relaxed);
#pragma omp parallel num_threads(workers)
      work(step, omp_get_thread_num(), omp_get_num_threads());
      if (step.finish != nullptr) step.finish(step.args, workers);
      do_not_optimize(step.args);
      if (!per_step.empty()) {
        const double end = now();
        per_step[s] += end - lap;
        lap = end;
      }
    }
  }
  const double seconds = now() - start;
  if (counters_ != nullptr) {
#pragma omp parallel num_threads(workers)
    counters_->end(omp_get_thread_num());
  }
  return seconds;
}

template <class Wait>
double Sampler::sample_barrier(std::span<const Step> steps, std::int64_t invocations,
                               std::span<double> per_step, const Wait& wait) {
  double start = 0.0;
  double end = 0.0;
  next_.store(0, std::memory_order_relaxed);
#pragma omp parallel num_threads(team_.size())
  {
    const int worker = omp_get_thread_num();
    const int workers = omp_get_num_threads();
    if (counters_ != nullptr) counters_->begin(worker);
    wait();
    double lap = 0.0;
    if (worker == 0) lap = start = now();
    for (std::int64_t k = 0; k < invocations; ++k) {
      for (std::size_t s = 0; s < steps.size(); ++s) {
        const Step& step = steps[s];
        work(step, worker, workers);
        wait();
        const bool serial_part =
            step.finish != nullptr || schedule_.kind == Schedule::Kind::Dynamic;
        if (worker == 0) {
          if (step.finish != nullptr) step.finish(step.args, workers);
          next_.store(0, std::memory_order_relaxed);
          if (!per_step.empty()) {
            const double done = now();
            per_step[s] += done - lap;
            lap = done;
          }
        }
        do_not_optimize(step.args);
        if (serial_part) wait();
      }
    }
    if (worker == 0) end = now();
    if (counters_ != nullptr) counters_->end(worker);
  }
  return end - start;
}

double Sampler::sample_free(const Step& step, std::int64_t invocations) {
  const auto workers = static_cast<std::size_t>(team_.size());
  std::vector<double> starts(workers);
  std::vector<double> ends(workers);
#pragma omp parallel num_threads(team_.size())
  {
    const int worker = omp_get_thread_num();
    const int team = omp_get_num_threads();
    // Computed here, because it may take longer than an invocation.
    const Range part = part_of(step, team, worker);
    if (counters_ != nullptr) counters_->begin(worker);
#pragma omp barrier
    const double start = now();
    for (std::int64_t k = 0; k < invocations; ++k) {
      if (schedule_.chunk == 0) {
        step.body(step.args, part, worker);
      } else {
        work(step, worker, team);
      }
      do_not_optimize(step.args);
    }
    const double end = now();
    if (counters_ != nullptr) counters_->end(worker);
    starts[static_cast<std::size_t>(worker)] = start;
    ends[static_cast<std::size_t>(worker)] = end;
  }
  double end = *std::max_element(ends.begin(), ends.end());
  if (step.finish != nullptr) {
    const double before = now();
    step.finish(step.args, team_.size());
    end += now() - before;
  }
  return end - *std::min_element(starts.begin(), starts.end());
}

double Sampler::sample(std::span<const Step> steps, std::int64_t invocations,
                       std::span<double> per_step, Counters* counters) {
  counters_ = counters;
  switch (repetition_) {
    case Repetition::Barrier: return sample_barrier(steps, invocations, per_step, omp_wait);
    case Repetition::Spin: {
      SpinBarrier barrier(team_.size());
      return sample_barrier(steps, invocations, per_step, [&barrier] { barrier.wait(); });
    }
    case Repetition::Free:
      if (steps.size() != 1) {
        throw InputError("repetition 'free' takes a single kernel, not a sequence: use 'barrier'");
      }
      return sample_free(steps[0], invocations);
    case Repetition::Fork: break;
  }
  return sample_fork(steps, invocations, per_step);
}

}  // namespace memkern
