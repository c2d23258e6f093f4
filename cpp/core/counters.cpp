#include "core/counters.hpp"

#include <linux/perf_event.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <tuple>

#include "core/errors.hpp"
#include "core/refusal.hpp"

namespace memkern {
namespace {

class SystemEvents : public EventSource {
 public:
  int open(const EventCode& event) override {
    perf_event_attr attr{};
    attr.size = sizeof attr;
    attr.type = event.type;
    attr.config = event.config;
    attr.config1 = event.config1;
    attr.config2 = event.config2;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    const bool of_unit = event.unit >= 0;
    // Counters of whole units do not distinguish the causes of events.
    attr.exclude_user = !of_unit && !event.user ? 1 : 0;
    attr.exclude_kernel = !of_unit && !event.kernel ? 1 : 0;
    attr.exclude_hv = attr.exclude_kernel;
    const pid_t thread = of_unit ? -1 : 0;
    const long descriptor = syscall(SYS_perf_event_open, &attr, thread, of_unit ? event.unit : -1,
                                    -1, PERF_FLAG_FD_CLOEXEC);
    return descriptor < 0 ? -errno : static_cast<int>(descriptor);
  }
  bool read(int counter, Count& count) override {
    std::uint64_t values[3];
    if (::read(counter, values, sizeof values) != static_cast<ssize_t>(sizeof values)) return false;
    count = {values[0], values[1], values[2]};
    return true;
  }
  void close(int counter) override { ::close(counter); }
};

std::atomic<EventSource*>& replaced() {
  static std::atomic<EventSource*> source{nullptr};
  return source;
}

std::string reason(int error) {
  switch (error) {
    case ENOENT: return "this machine has no counter for it (virtual machines rarely have any)";
    case EACCES:
    case EPERM:
      if (error == EPERM && filtered()) return refused("perf_event_open", error, "PERFMON");
      return "the system does not permit it: run as root, or lower kernel.perf_event_paranoid";
    case ENODEV:
    case ENXIO: return "there is no such counting unit here";
    case EOPNOTSUPP: return "the processor's counters do not support it";
    case EINVAL: return "the kernel rejects its code";
    case ENOSYS:
      if (filtered()) return refused("perf_event_open", error, "PERFMON");
      return "this kernel has no perf_event_open";
    case EMFILE: return "too many files are open: raise ulimit -n, or count fewer events";
    case EBUSY: return "another program uses the counters exclusively";
    default: return std::string("the system refuses it: ") + std::strerror(error);
  }
}

}  // namespace

EventSource& event_source() {
  static SystemEvents system;
  EventSource* source = replaced().load();
  return source == nullptr ? system : *source;
}

void replace_event_source(EventSource* source) { replaced().store(source); }

std::string why_not_counted(const EventCode& event) {
  const int descriptor = event_source().open(event);
  if (descriptor < 0) return reason(-descriptor);
  Count count;
  const bool readable = event_source().read(descriptor, count);
  event_source().close(descriptor);
  return readable ? "" : "its counter can't be read";
}

Counters::Counters(const Team& team, std::vector<EventCode> events)
    : source_(event_source()),
      events_(std::move(events)),
      workers_(static_cast<std::size_t>(team.size())) {
#pragma omp parallel num_threads(team.size())
  {
    const int worker = omp_get_thread_num();
    std::vector<Counter>& counters = workers_[static_cast<std::size_t>(worker)].counters;
    counters.resize(events_.size());
    for (std::size_t e = 0; e < events_.size(); ++e) {
      if (events_[e].unit < 0 || worker == 0) counters[e].descriptor = source_.open(events_[e]);
    }
  }
  for (const Worker& worker : workers_) {
    for (std::size_t e = 0; e < events_.size(); ++e) {
      const int descriptor = worker.counters[e].descriptor;
      const bool needed = events_[e].unit < 0 || &worker == &workers_.front();
      if (!needed || descriptor >= 0) continue;
      close();
      throw InputError("event '" + events_[e].name + "' can't be counted: " + reason(-descriptor));
    }
  }
}

Counters::~Counters() { close(); }

void Counters::close() {
  for (Worker& worker : workers_) {
    for (Counter& counter : worker.counters) {
      if (counter.descriptor >= 0) source_.close(counter.descriptor);
      counter.descriptor = -1;
    }
  }
}

void Counters::read(int worker, Count Counter::*to) {
  for (Counter& counter : workers_[static_cast<std::size_t>(worker)].counters) {
    if (counter.descriptor < 0) continue;
    if (source_.read(counter.descriptor, counter.*to)) continue;
    source_.close(counter.descriptor);
    counter = {};
  }
}

void Counters::begin(int worker) { read(worker, &Counter::before); }

void Counters::end(int worker) { read(worker, &Counter::after); }

void Counters::sum(std::span<Count> counts) const {
  for (std::size_t e = 0; e < counts.size() && e < events_.size(); ++e) {
    Count total;
    for (const Worker& worker : workers_) {
      const Counter& counter = worker.counters[e];
      if (events_[e].unit >= 0 && &worker != &workers_.front()) continue;
      if (counter.descriptor < 0) {
        total = {};
        break;
      }
      total.value += counter.after.value - counter.before.value;
      total.enabled_ns += counter.after.enabled_ns - counter.before.enabled_ns;
      total.running_ns += counter.after.running_ns - counter.before.running_ns;
    }
    counts[e] = total;
  }
}

int SteppedEvents::open(const EventCode& event) {
  const std::scoped_lock guard(lock_);
  for (const Step& step : steps_) {
    if (std::tie(step.type, step.config, step.config1, step.config2) !=
        std::tie(event.type, event.config, event.config1, event.config2)) {
      continue;
    }
    if (step.error != 0) return -step.error;
    open_.push_back({&step, {}, 0});
    return static_cast<int>(open_.size()) - 1;
  }
  return -ENOENT;
}

bool SteppedEvents::read(int counter, Count& count) {
  const std::scoped_lock guard(lock_);
  if (counter < 0 || counter >= std::ssize(open_)) return false;
  Open& open = open_[static_cast<std::size_t>(counter)];
  if (open.step == nullptr || open.readings++ == open.step->readable) return false;
  const Count& step = open.step->step;
  open.count.value += step.value;
  open.count.enabled_ns += step.enabled_ns;
  open.count.running_ns += step.running_ns;
  count = open.count;
  return true;
}

void SteppedEvents::close(int counter) {
  const std::scoped_lock guard(lock_);
  if (counter >= 0 && counter < std::ssize(open_)) {
    open_[static_cast<std::size_t>(counter)].step = nullptr;
  }
}

int SteppedEvents::opened() const {
  const std::scoped_lock guard(lock_);
  return static_cast<int>(std::count_if(open_.begin(), open_.end(),
                                        [](const Open& open) { return open.step != nullptr; }));
}

}  // namespace memkern
