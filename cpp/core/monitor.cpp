#include "core/monitor.hpp"

#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>

#include "core/clock.hpp"
#include "core/exchange.hpp"
#include "core/sampler.hpp"

namespace memkern {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Per worker: reading its counters takes one to two microseconds.
constexpr double kReadInterval_s = 80e-6;
// Shorter losses are ignored, as the two clocks are not read at the same moment. A switch to
// another thread takes longer.
constexpr double kMinLost_s = 2e-6;
// Time between two measurements of the cores, as a multiple of the time that one takes.
constexpr double kCoreInterval = 50.0;
constexpr double kSharedCoreInterval = 10.0;
constexpr double kMaxWait_s = 10e-3;

double seconds(clockid_t clock) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) return kUnknown;
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

Monitor::Monitor(const Team& team, double least_throughput)
    : team_(team),
      least_throughput_(least_throughput),
      workers_(static_cast<std::size_t>(team.size())) {
#pragma omp parallel num_threads(team_.size())
  {
    Worker& worker = workers_[static_cast<std::size_t>(omp_get_thread_num())];
    worker.thread = static_cast<pid_t>(syscall(SYS_gettid));
    if (pthread_getcpuclockid(pthread_self(), &worker.clock) != 0) worker.clock = -1;
  }
  for (Worker& worker : workers_) {
    const std::string path = "/proc/self/task/" + std::to_string(worker.thread) + "/schedstat";
    worker.file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
}

Monitor::~Monitor() {
  for (const Worker& worker : workers_) {
    if (worker.file >= 0) close(worker.file);
  }
}

bool Monitor::read(Worker& worker) {
  char text[96];
  if (worker.file < 0) return false;
  const ssize_t length = pread(worker.file, text, sizeof text - 1, 0);
  if (length <= 0) return false;
  text[length] = '\0';
  unsigned long long ran_ns = 0;
  unsigned long long waited_ns = 0;
  if (std::sscanf(text, "%llu %llu %ld", &ran_ns, &waited_ns, &worker.switches) != 3) return false;
  worker.delay_s = 1e-9 * static_cast<double>(waited_ns);
  worker.cpu_s = seconds(worker.clock);
  worker.wall_s = now();
  return true;
}

void Monitor::read_workers(bool count) {
  double least = kUnknown;
  for (Worker& worker : workers_) {
    const Worker before = worker;
    if (!read(worker) || !count) continue;
    const double wall_s = worker.wall_s - before.wall_s;
    double lost_s = worker.delay_s - before.delay_s;
    // A worker that was never switched out has not slept: time without CPU time was taken from its
    // processor.
    if (worker.switches == before.switches) {
      lost_s += std::max(0.0, wall_s - (worker.cpu_s - before.cpu_s));
    }
    if (lost_s < kMinLost_s) lost_s = 0.0;
    const double share = std::clamp(1.0 - lost_s / wall_s, 0.0, 1.0);
    least = std::isnan(least) ? share : std::min(least, share);
  }
  for (Conditions* sample : since_read_) sample->cpu_share = least;
  since_read_.clear();
  read_s_ = now();
}

void Monitor::measure_cores(bool count) {
  std::vector<CoreState> cores(workers_.size());
  const double start = now();
#pragma omp parallel num_threads(team_.size())
  cores[static_cast<std::size_t>(omp_get_thread_num())] = measure_core();
  const double exchange_before_s = exchange_s_;
  exchange_s_ = measure_exchange(team_);
  measured_s_ = now();
  core_cost_s_ = measured_s_ - start;
  const double before = throughput_;
  const auto less = [](const CoreState& a, const CoreState& b) {
    return a.throughput < b.throughput;
  };
  throughput_ = std::min_element(cores.begin(), cores.end(), less)->throughput;
  const auto middle = cores.begin() + std::ssize(cores) / 2;
  std::nth_element(cores.begin(), middle, cores.end(),
                   [](const CoreState& a, const CoreState& b) { return a.clock_Hz < b.clock_Hz; });
  clock_Hz_ = middle->clock_Hz;
  if (count) {
    for (Conditions* sample : since_cores_) {
      sample->throughput = std::min(before, throughput_);
      sample->clock_Hz = clock_Hz_;
      sample->exchange_s = std::max(exchange_before_s, exchange_s_);
    }
  }
  since_cores_.clear();
  interval_ = throughput_ < least_throughput_ ? kSharedCoreInterval : kCoreInterval;
}

void Monitor::start() {
  since_read_.clear();
  measure_cores(false);
  read_workers(false);
}

void Monitor::wait_for_cores(double end_s) {
  if (throughput_ >= least_throughput_) return;
  // At most once per interval, so that samples are taken even if the cores stay shared.
  if (!since_cores_.empty()) return;
  const double until_s = std::min(now() + kMaxWait_s, end_s);
  while (throughput_ < least_throughput_ && now() < until_s) measure_cores(false);
  interval_ = kSharedCoreInterval;
  read_workers(false);
}

void Monitor::sample_ended(Conditions& conditions) {
  conditions = {kUnknown, kUnknown, kUnknown, kUnknown};
  since_read_.push_back(&conditions);
  since_cores_.push_back(&conditions);
  const double time_s = now();
  const double interval_s = kReadInterval_s * static_cast<double>(workers_.size());
  if (time_s - read_s_ >= interval_s) read_workers(true);
  if (time_s - measured_s_ < interval_ * core_cost_s_) return;
  if (!since_read_.empty()) read_workers(true);
  measure_cores(true);
  read_workers(false);
}

void Monitor::finish() {
  if (!since_read_.empty()) read_workers(true);
  if (!since_cores_.empty()) measure_cores(true);
}

}  // namespace memkern
