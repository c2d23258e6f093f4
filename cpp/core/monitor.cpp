#include "core/monitor.hpp"

#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string>

#include "core/clock.hpp"
#include "core/exchange.hpp"
#include "core/memory.hpp"
#include "core/sampler.hpp"

namespace memkern {
namespace {

constexpr double kUnknown = Conditions::kUnknown;
// Per worker: reading its counters takes one to two microseconds.
constexpr double kReadInterval_s = 80e-6;
// Shorter losses are ignored, because the two clocks are not read simultaneously. A switch to
// another thread takes longer.
constexpr double kMinLost_s = 2e-6;
// Time between two measurements of the cores, as a multiple of the time of one.
constexpr double kCoreInterval = 50.0;

double seconds(clockid_t clock) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) return kUnknown;
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The run-queue delay and the switches of a thread, by its open schedstat. A kernel that does not
// count them reports zeros, although a running thread was switched to at least once.
bool read_schedstat(int file, double& delay_s, long& switches) {
  char text[96];
  if (file < 0) return false;
  const ssize_t length = pread(file, text, sizeof text - 1, 0);
  if (length <= 0) return false;
  text[length] = '\0';
  unsigned long long ran_ns = 0;
  unsigned long long waited_ns = 0;
  if (std::sscanf(text, "%llu %llu %ld", &ran_ns, &waited_ns, &switches) != 3) return false;
  delay_s = 1e-9 * static_cast<double>(waited_ns);
  return switches > 0;
}

// Returns -1 if the file can't be read.
int open_schedstat(pid_t thread, const std::string& root) {
  const std::string path = root + "/proc/self/task/" + std::to_string(thread) + "/schedstat";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  double delay_s = 0.0;
  long switches = 0;
  if (file < 0 || read_schedstat(file, delay_s, switches)) return file;
  close(file);
  return -1;
}

}  // namespace

bool run_queue_delays_known(const std::string& root) {
  const int file = open_schedstat(static_cast<pid_t>(syscall(SYS_gettid)), root);
  if (file < 0) return false;
  close(file);
  return true;
}

Monitor::Monitor(const Team& team, const std::string& root, bool cores)
    : team_(team),
      workers_(static_cast<std::size_t>(team.size())),
      asks_workers_(!team.bound()),
      measures_cores_(cores) {
#pragma omp parallel num_threads(team_.size())
  {
    Worker& worker = workers_[static_cast<std::size_t>(omp_get_thread_num())];
    worker.thread = static_cast<pid_t>(syscall(SYS_gettid));
    if (pthread_getcpuclockid(pthread_self(), &worker.clock) != 0) worker.clock = -1;
  }
  for (Worker& worker : workers_) {
    worker.file = open_schedstat(worker.thread, root);
    if (worker.file < 0) asks_workers_ = true;
  }
}

Monitor::~Monitor() {
  for (const Worker& worker : workers_) {
    if (worker.file >= 0) close(worker.file);
  }
}

void Monitor::read(Worker& worker) {
  if (worker.file >= 0) read_schedstat(worker.file, worker.delay_s, worker.switches);
  worker.cpu_s = seconds(worker.clock);
  worker.wall_s = now();
}

Monitor::Shares Monitor::shares(const Worker& before, const Worker& after) {
  const double wall_s = after.wall_s - before.wall_s;
  const double unused_s = wall_s - (after.cpu_s - before.cpu_s);
  const auto share = [&](double lost_s) {
    return std::clamp(lost_s < kMinLost_s ? 0.0 : lost_s / wall_s, 0.0, 1.0);
  };
  if (after.file < 0) {
    // A worker that only slept was not delayed. If it slept and was preempted, the share of waiting
    // is unknown: the whole time counts, so that no disturbed sample is used.
    const bool only_waited = after.waits != before.waits && after.preemptions == before.preemptions;
    return {1.0 - share(only_waited ? 0.0 : unused_s), kUnknown, kUnknown};
  }
  const double delay_s = after.delay_s - before.delay_s;
  // A worker that was never switched out has not slept: time without CPU time was taken from its
  // processor.
  if (after.switches != before.switches) return {1.0 - share(delay_s), share(delay_s), kUnknown};
  const double absent_s = std::max(0.0, unused_s);
  return {1.0 - share(delay_s + absent_s), share(delay_s), share(absent_s)};
}

void Monitor::read_workers() {
  before_ = workers_;
  if (asks_workers_) {
#pragma omp parallel num_threads(team_.size())
    {
      Worker& worker = workers_[static_cast<std::size_t>(omp_get_thread_num())];
      worker.unit = sched_getcpu();
      rusage used{};
      if (worker.file < 0 && getrusage(RUSAGE_THREAD, &used) == 0) {
        worker.waits = used.ru_nvcsw;
        worker.preemptions = used.ru_nivcsw;
      }
    }
  }
  // The worst known value of the workers counts.
  const auto worse = [](double a, double b, bool smaller) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
    return smaller ? std::min(a, b) : std::max(a, b);
  };
  Shares worst{kUnknown, kUnknown, kUnknown};
  bool moved = false;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    read(worker);
    const Shares own = shares(before_[w], worker);
    worst = {worse(worst.with_processor, own.with_processor, true),
             worse(worst.waited, own.waited, false), worse(worst.absent, own.absent, false)};
    moved = moved || worker.unit != before_[w].unit;
  }
  for (Conditions* sample : since_read_) {
    sample->cpu_share = worst.with_processor;
    sample->moved = moved ? 1.0 : 0.0;
    sample->waited_share = worst.waited;
    sample->absent_share = worst.absent;
  }
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
  const double memory_before_s = memory_s_;
  memory_s_ = measure_memory();
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
      sample->exchange_least_s = std::min(exchange_before_s, exchange_s_);
      sample->memory_s = std::max(memory_before_s, memory_s_);
    }
  }
  since_cores_.clear();
}

void Monitor::start() {
  since_read_.clear();
  if (measures_cores_) measure_cores(false);
  read_workers();
}

void Monitor::sample_ended(Conditions& conditions) {
  conditions = {};
  since_read_.push_back(&conditions);
  if (measures_cores_) since_cores_.push_back(&conditions);
  const double time_s = now();
  const double interval_s = kReadInterval_s * static_cast<double>(workers_.size());
  if (time_s - read_s_ >= interval_s) read_workers();
  if (!measures_cores_ || time_s - measured_s_ < kCoreInterval * core_cost_s_) return;
  if (!since_read_.empty()) read_workers();
  measure_cores(true);
  read_workers();
}

void Monitor::finish() {
  if (!since_read_.empty()) read_workers();
  if (!since_cores_.empty()) measure_cores(true);
}

}  // namespace memkern
