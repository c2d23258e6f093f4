// Counters of events of the processor and of the operating system during samples, by the kernel's
// perf_event_open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/team.hpp"

namespace memkern {

// An event, in the kernel's terms (perf_event_open(2)).
struct EventCode {
  std::string name;  // for messages
  std::uint32_t type = 0;
  std::uint64_t config = 0;
  std::uint64_t config1 = 0;
  std::uint64_t config2 = 0;
  // Processing unit whose events are all counted, such as the traffic of its socket's memory
  // controllers; -1: the events of each worker are counted.
  int unit = -1;
  // Whether events of user code and of the kernel count; for a worker only.
  bool user = true;
  bool kernel = false;
};

// Value of a counter, and the times during which it was enabled and during which it counted; the
// latter is shorter if the processor has too few counters and multiplexes them.
struct Count {
  std::uint64_t value = 0;
  std::uint64_t enabled_ns = 0;
  std::uint64_t running_ns = 0;
};

// Source of counts: the kernel, or a test.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Starts a counter for the calling thread or for the event's unit. Returns its descriptor, or an
  // error number of the system, negative.
  virtual int open(const EventCode& event) = 0;
  // False if the counter can't be read.
  virtual bool read(int counter, Count& count) = 0;
  virtual void close(int counter) = 0;
};

// The source of all counters: the kernel, unless a test has replaced it. Null restores it.
EventSource& event_source();
void replace_event_source(EventSource* source);

// The reason why an event can't be counted here, as the end of a sentence; empty if it can.
std::string why_not_counted(const EventCode& event);

// The counters of a team during a series of samples. The caller holds a Team::Session during their
// lifetime.
class Counters {
 public:
  // Throws InputError if an event can't be counted.
  Counters(const Team& team, std::vector<EventCode> events);
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  std::size_t size() const { return events_.size(); }
  // Called by each worker right before and right after its part of a sample.
  void begin(int worker);
  void end(int worker);
  // Counts of the last sample, one for each event, summed over the workers. The values of an event
  // that could not be read are all 0, its times included.
  void sum(std::span<Count> counts) const;

 private:
  struct Counter {
    int descriptor = -1;
    Count before;
    Count after;
  };
  // Counters of one worker, in separate cache lines; counters of whole units belong to the first
  // worker.
  struct alignas(128) Worker {
    std::vector<Counter> counters;
  };
  void close();
  void read(int worker, Count Counter::*to);

  EventSource& source_;
  std::vector<EventCode> events_;
  std::vector<Worker> workers_;
};

// A source of known counts, for tests: between two readings each counter grows by the same step.
class SteppedEvents : public EventSource {
 public:
  struct Step {
    std::uint32_t type = 0;
    std::uint64_t config = 0;
    Count step;
    int error = 0;               // if not 0, it can't be opened
    std::int64_t readable = -1;  // readings after which it can't be read; -1: always
    std::uint64_t config1 = 0;
    std::uint64_t config2 = 0;
  };
  explicit SteppedEvents(std::vector<Step> steps) : steps_(std::move(steps)) {}
  int open(const EventCode& event) override;
  bool read(int counter, Count& count) override;
  void close(int counter) override;
  int opened() const;  // counters that are open

 private:
  struct Open {
    const Step* step = nullptr;
    Count count;
    std::int64_t readings = 0;
  };
  std::vector<Step> steps_;
  std::vector<Open> open_;
  mutable std::mutex lock_;
};

}  // namespace memkern
