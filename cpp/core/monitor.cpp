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
#include "core/sampler.hpp"

namespace memkern {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// A look costs one to two microseconds a worker.
constexpr double kLookEvery_s = 80e-6;
// Shorter than any switch to another thread: the two clocks are not read at the same moment.
constexpr double kLeastLost_s = 2e-6;
// Measuring the cores takes one part in so many of the time, and more where they are shared.
constexpr double kCoresOneIn = 50.0;
constexpr double kSharedCoresOneIn = 10.0;
constexpr double kPatience_s = 10e-3;

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

void Monitor::look(bool count) {
  double least = kUnknown;
  for (Worker& worker : workers_) {
    const Worker before = worker;
    if (!read(worker) || !count) continue;
    const double wall_s = worker.wall_s - before.wall_s;
    double lost_s = worker.delay_s - before.delay_s;
    // One that was never switched out has not slept either: it ran, or the processor itself was
    // not there.
    if (worker.switches == before.switches) {
      lost_s += std::max(0.0, wall_s - (worker.cpu_s - before.cpu_s));
    }
    if (lost_s < kLeastLost_s) lost_s = 0.0;
    const double share = std::clamp(1.0 - lost_s / wall_s, 0.0, 1.0);
    least = std::isnan(least) ? share : std::min(least, share);
  }
  for (Conditions* sample : since_look_) sample->cpu_share = least;
  since_look_.clear();
  looked_s_ = now();
}

void Monitor::measure_cores(bool count) {
  std::vector<CoreState> cores(workers_.size());
  const double start = now();
#pragma omp parallel num_threads(team_.size())
  cores[static_cast<std::size_t>(omp_get_thread_num())] = measure_core();
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
    }
  }
  since_cores_.clear();
  stretch_ = throughput_ < least_throughput_ ? kSharedCoresOneIn : kCoresOneIn;
}

void Monitor::start() {
  since_look_.clear();
  measure_cores(false);
  look(false);
}

void Monitor::await_cores(double end_s) {
  if (throughput_ >= least_throughput_) return;
  // Once a stretch: its samples are taken, whatever was found.
  if (!since_cores_.empty()) return;
  const double until_s = std::min(now() + kPatience_s, end_s);
  while (throughput_ < least_throughput_ && now() < until_s) measure_cores(false);
  stretch_ = kSharedCoresOneIn;
  look(false);
}

void Monitor::sampled(Conditions& conditions) {
  conditions = {kUnknown, kUnknown, kUnknown};
  since_look_.push_back(&conditions);
  since_cores_.push_back(&conditions);
  const double time_s = now();
  const double every_s = kLookEvery_s * static_cast<double>(workers_.size());
  if (time_s - looked_s_ >= every_s) look(true);
  if (time_s - measured_s_ < stretch_ * core_cost_s_) return;
  if (!since_look_.empty()) look(true);
  measure_cores(true);
  look(false);
}

void Monitor::finish() {
  if (!since_look_.empty()) look(true);
  if (!since_cores_.empty()) measure_cores(true);
}

}  // namespace memkern
