// The Python face of every family: one class for a prepared case, and what the binary knows about
// itself and the machine.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "bindings/errors.hpp"
#include "core/buffer.hpp"
#include "core/device.hpp"
#include "core/errors.hpp"
#include "core/limits.hpp"
#include "core/load.hpp"
#include "core/monitor.hpp"
#include "core/problem.hpp"
#include "core/sampler.hpp"
#include "core/team.hpp"
#include "core/topology.hpp"

namespace py = pybind11;

namespace memkern {
namespace {

// Workers, pool and caches are the machine's: one case is prepared or measured at a time.
std::mutex& machine_lock() {
  static std::mutex lock;
  return lock;
}

// Takes the machine without holding the interpreter, so that a thread that waits for it cannot
// block the one that works.
class Exclusive {
 public:
  Exclusive() : lock_(machine_lock()) {}

 private:
  py::gil_scoped_release release_;
  std::lock_guard<std::mutex> lock_;
};

py::dtype numpy_dtype(DType type) { return py::dtype(dtype_name(type)); }

using IndexArray = py::array_t<std::int64_t, py::array::c_style>;

// All that is requested of a case, by the names that it has in Python.
struct Request {
  std::string kernel;
  std::string dtype;
  std::string index_dtype;
  std::string form;
  Inputs inputs;
  int threads = 0;
  std::string pin;
  std::string pages;
  std::string numa;
  std::int64_t offset_B = 0;
  std::string schedule;
  std::int64_t chunk = 0;
  std::string repetition;
  int unroll = 0;
  bool flush = false;
  std::int64_t seed = 0;
  Device* device = nullptr;
  Timer timer = Timer::Host;
  int block_threads = 0;

  explicit Request(const py::dict& d) {
    std::size_t taken = 0;
    const auto parse = [&]<class T>(const char* name, T& to) {
      if (!d.contains(name)) throw InputError(std::string("the argument ") + name + " is missing");
      try {
        to = d[name].cast<T>();
      } catch (const py::cast_error&) {
        throw InputError(std::string("the argument ") + name + " has the wrong type");
      }
      ++taken;
    };
    parse("kernel", kernel);
    parse("dtype", dtype);
    parse("index_dtype", index_dtype);
    parse("form", form);
    parse("integers", inputs.integers);
    parse("numbers", inputs.numbers);
    parse("arrays", inputs.arrays);
    std::map<std::string, py::array> arrays;
    parse("indices", arrays);
    for (const auto& [name, array] : arrays) take_indices(name, array);
    parse("data", arrays);
    for (const auto& [name, array] : arrays) take_data(name, array);
    parse("threads", threads);
    parse("pin", pin);
    parse("pages", pages);
    parse("numa", numa);
    parse("offset", offset_B);
    parse("schedule", schedule);
    parse("chunk", chunk);
    parse("repetition", repetition);
    parse("unroll", unroll);
    parse("flush", flush);
    parse("seed", seed);
    parse("block_threads", block_threads);
    std::string how;
    parse("timer", how);
    timer = parse_timer(how);
    py::object capsule;
    parse("device", capsule);
    if (!capsule.is_none()) device = device_of(capsule);
    if (device != nullptr && (block_threads < 0 || block_threads > device->most_threads())) {
      throw InputError("block_threads must be from 1 to " + std::to_string(device->most_threads()) +
                       ", not " + std::to_string(block_threads));
    }
    if (taken != d.size()) throw InputError("there is an argument that no case has");
  }

 private:
  static Device* device_of(const py::object& object) {
    constexpr const char* kName = "memkern.Device";
    if (PyCapsule_IsValid(object.ptr(), kName) == 0) {
      throw InputError("the argument device has the wrong type");
    }
    return static_cast<Device*>(PyCapsule_GetPointer(object.ptr(), kName));
  }

  static Timer parse_timer(const std::string& text) {
    if (text == "host") return Timer::Host;
    if (text == "events") return Timer::Events;
    if (text == "graph") return Timer::Graph;
    throw InputError("timer '" + text + "' is not host, events or graph");
  }

  // Integers of 32 bits are taken as they are, all others as 64 bits.
  void take_indices(const std::string& name, const py::array& array) {
    if (array.ndim() != 1) throw InputError(name + " must have one dimension");
    const bool narrow = array.dtype().is(py::dtype::of<std::int32_t>()) && is_contiguous(array);
    if (narrow) {
      kept_.push_back(array);
    } else {
      try {
        kept_.push_back(array.cast<IndexArray>());
      } catch (const py::cast_error&) {
        throw InputError(name + " must hold whole numbers");
      }
    }
    inputs.indices[name] = {kept_.back().data(), array.size(), narrow};
  }

  void take_data(const std::string& name, const py::array& array) {
    if (array.ndim() != 1 || !is_contiguous(array)) {
      throw InputError(name + " must be contiguous and have one dimension");
    }
    kept_.push_back(array);
    const DType type = parse_dtype(py::str(array.dtype()).cast<std::string>());
    inputs.data[name] = {array.data(), array.size(), type};
  }

  static bool is_contiguous(const py::array& array) {
    return (array.flags() & py::array::c_style) != 0;
  }

  std::vector<py::array> kept_;
};

// A variant for an instruction set, of every kernel that an invocation runs.
template <class S>
struct Candidate {
  std::string variant;
  std::string isa;
  std::vector<S> steps;
};

// What of a table a case can be run by. `isa_of` says for what an entry is built, empty where that
// is not to be had; `step_of` makes of an entry and its arguments what is run.
template <class S, class E, class IsaOf, class StepOf>
std::vector<Candidate<S>> candidates_of(const std::vector<E>& table, const Problem& problem,
                                        const Request& request, const IsaOf& isa_of,
                                        const StepOf& step_of) {
  std::vector<Stage> stages = problem.stages();
  if (stages.empty()) stages.push_back({request.kernel, problem.args()});
  std::vector<Candidate<S>> found;
  std::set<int> unrolls;
  std::set<std::string> forms;
  for (const E& e : table) {
    if (stages.front().kernel != e.kernel || request.dtype != e.dtype ||
        problem.index_dtype() != e.index) {
      continue;
    }
    const std::string isa = isa_of(e);
    if (isa.empty() || !problem.runs({static_cast<const Entry&>(e), isa})) continue;
    forms.insert(e.form);
    if (request.form != e.form) continue;
    unrolls.insert(e.unroll);
    if (e.unroll != request.unroll) continue;
    Candidate<S> candidate{e.variant, isa, {}};
    for (const Stage& stage : stages) {
      const auto same = [&](const E& other) {
        return stage.kernel == other.kernel && std::string(e.variant) == other.variant &&
               isa == isa_of(other) && std::string(e.dtype) == other.dtype &&
               std::string(e.index) == other.index && e.unroll == other.unroll &&
               std::string(e.form) == other.form;
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
  if (!forms.empty()) {
    std::string known;
    for (const std::string& form : forms) known += (known.empty() ? "" : ", ") + form;
    throw InputError(kernel + " is not built as '" + request.form + "' for " + request.dtype +
                     " values: there are " + known);
  }
  throw InputError(kernel + " has no variant for " + request.dtype + " values" +
                   (request.index_dtype.empty() ? "" : " and " + request.index_dtype + " indices") +
                   (request.device == nullptr ? "" : " on " + request.device->name()));
}

// Who runs a prepared case: the process's own workers, or a device.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual std::vector<std::pair<std::string, std::string>> candidates() const = 0;
  // False where there is no such candidate.
  virtual bool select(const std::string& variant, const std::string& isa) = 0;
  virtual std::size_t steps() const = 0;
  // Seconds of a sample; each step's are added to `per_step` where that is not empty.
  virtual double sample(std::int64_t invocations, std::span<double> per_step) = 0;
  virtual double run_range(Range range) = 0;
  virtual void flush() = 0;
  // Binds the workers and watches them while it lives; null where there is nothing to watch.
  struct Watch {
    Watch(const Team& team, double least_throughput)
        : session(team), monitor(team, least_throughput) {
      monitor.start();
    }
    Team::Session session;
    Monitor monitor;
  };
  virtual std::unique_ptr<Watch> watch(double least_throughput) = 0;
  virtual void describe(py::dict& obtained) const = 0;
};

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
  void describe(py::dict& obtained) const override {
    obtained["variant"] = selected_->variant;
    obtained["isa"] = selected_->isa;
  }

 protected:
  void choose_from(std::vector<Candidate<S>> candidates) {
    candidates_ = std::move(candidates);
    selected_ = &candidates_.front();
  }
  const std::vector<S>& selected() const { return selected_->steps; }

 private:
  std::vector<Candidate<S>> candidates_;
  const Candidate<S>* selected_ = nullptr;
};

class HostRunner : public RunnerOf<Step> {
 public:
  HostRunner(const Team& team, const Problem& problem, const Request& request)
      : team_(team),
        sampler_(team, parse_schedule(request.schedule, request.chunk),
                 parse_repetition(request.repetition)),
        boundaries_(problem.boundaries()),
        flush_arena_(team, Placement{}) {
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
    choose_from(std::move(found));
    if (!request.flush) return;
    const std::int64_t bytes =
        2 * std::max<std::int64_t>(Topology::instance().last_level_cache_B(), 1 << 20);
    flush_arena_.request(bytes, 1);
    flush_arena_.commit();
    flusher_.emplace(team_, flush_arena_[0]);
  }

  double sample(std::int64_t invocations, std::span<double> per_step) override {
    const Team::Session session(team_);
    return sampler_.sample(selected(), invocations, per_step);
  }

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
  std::unique_ptr<Watch> watch(double least_throughput) override {
    return std::make_unique<Watch>(team_, least_throughput);
  }
  void describe(py::dict& obtained) const override {
    RunnerOf::describe(obtained);
    obtained["threads"] = team_.size();
    obtained["block_threads"] = 0;
    obtained["pin"] = team_.pin_obtained();
    obtained["vector_B"] = vector_size(obtained["isa"].cast<std::string>());
  }

 private:
  struct Part {
    std::int64_t begin;
    const Step* whole;
  };
  static void run_part(const void* p, Range range, int worker) {
    const Part& part = *static_cast<const Part*>(p);
    part.whole->body(part.whole->args, {part.begin + range.begin, part.begin + range.end}, worker);
  }
  static void finish_part(const void* p, int workers) {
    const Step& whole = *static_cast<const Part*>(p)->whole;
    whole.finish(whole.args, workers);
  }

  const Team& team_;
  Sampler sampler_;
  Boundaries boundaries_;
  std::vector<Part> parts_;
  Arena flush_arena_;
  std::optional<CacheFlusher> flusher_;
};

class DeviceRunner : public RunnerOf<DeviceStep> {
 public:
  DeviceRunner(const Problem& problem, const Request& request)
      : device_(*request.device),
        timer_(request.timer),
        flushes_(request.flush),
        asked_(request.threads) {
    const auto isa_of = [&](const DeviceEntry&) { return device_.isa(); };
    const auto step_of = [&](const DeviceEntry& e, const void* args) {
      const int threads = request.block_threads == 0 ? e.threads : request.block_threads;
      return DeviceStep{e.launch, args, {0, problem.count()}, threads};
    };
    choose_from(candidates_of<DeviceStep>(device_.entries(), problem, request, isa_of, step_of));
  }

  double sample(std::int64_t invocations, std::span<double> per_step) override {
    return device_.sample(selected(), invocations, timer_,
                          per_step.empty() ? nullptr : per_step.data());
  }
  double run_range(Range range) override {
    std::vector<DeviceStep> steps = selected();
    for (DeviceStep& step : steps) step.range = range;
    return device_.sample(steps, 1, Timer::Host, nullptr);
  }
  void flush() override {
    if (flushes_) device_.flush();
  }
  std::unique_ptr<Watch> watch(double) override { return nullptr; }
  void describe(py::dict& obtained) const override {
    RunnerOf::describe(obtained);
    obtained["threads"] = asked_ > 0 ? asked_ : device_.units();
    obtained["block_threads"] = selected().front().threads;
    obtained["pin"] = "none";
    obtained["vector_B"] = 0;
  }

 private:
  Device& device_;
  Timer timer_;
  bool flushes_;
  int asked_;
};

class Prepared {
 public:
  explicit Prepared(const Request& request)
      : team_(request.device == nullptr ? TeamRequest{request.threads, request.pin}
                                        : TeamRequest{1, "none"}),
        kernel_(request.kernel) {
    const Placement placement{parse_pages(request.pages), parse_numa(request.numa),
                              request.offset_B, request.device, std::max(request.threads, 1)};
    const std::string family = kernel_.substr(0, kernel_.find('.') + 1);
    const Factory factory = find_family(family.substr(0, family.size() - 1));
    // Not every family prepares what a device can reach.
    if (request.device != nullptr) {
      const auto& known = request.device->entries();
      const auto here = [&](const DeviceEntry& e) {
        return std::string(e.kernel).starts_with(family);
      };
      if (std::none_of(known.begin(), known.end(), here)) {
        throw InputError("kernel '" + kernel_ + "' does not run on " + request.device->name());
      }
    }
    problem_ =
        factory(kernel_, request.dtype, request.index_dtype, request.inputs, team_, placement);
    if (request.device == nullptr) {
      runner_ = std::make_unique<HostRunner>(team_, *problem_, request);
    } else {
      runner_ = std::make_unique<DeviceRunner>(*problem_, request);
    }
    problem_->set_seed(request.seed);
    problem_->fill(false);
  }

  ~Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // Workers are bound and memory goes to and from the pool at both ends of a case's life, so both
  // take the machine.
  struct Release {
    void operator()(Prepared* prepared) const {
      const Exclusive exclusive;
      delete prepared;
    }
  };
  using Holder = std::unique_ptr<Prepared, Release>;
  static Holder make(const py::kwargs& arguments) {
    const Request request(arguments);
    const Exclusive exclusive;
    return Holder(new Prepared(request));
  }

  std::vector<std::pair<std::string, std::string>> candidates() const {
    return runner_->candidates();
  }

  void select(const std::string& variant, const std::string& isa) {
    const Exclusive exclusive;
    if (runner_->select(variant, isa)) return;
    throw InputError("kernel '" + kernel_ + "' has no variant '" + variant + "' for " + isa +
                     " on this machine with these inputs");
  }

  double run(std::int64_t invocations) {
    check_invocations(invocations);
    const Exclusive exclusive;
    problem_->mark_written();
    return runner_->sample(invocations, {});
  }

  // Fills rows of `out`, sample by sample, and stops after the first that ends later than
  // `deadline_s` from now; where the cores do less than `least_throughput` it waits for a moment.
  // Columns: seconds per invocation; where there are more than four, those of the kernels that an
  // invocation runs in turn; the three of Conditions, NaN on a device. What a signal interrupts
  // keeps the samples done; the rest of `out` stays as it was.
  std::int64_t sample(py::array_t<double, py::array::c_style>& out, std::int64_t invocations,
                      double deadline_s, double least_throughput) {
    check_invocations(invocations);
    constexpr std::size_t kConditions = 3;
    const std::size_t steps = runner_->steps();
    if (out.ndim() != 2 || (out.shape(1) != static_cast<py::ssize_t>(1 + kConditions) &&
                            out.shape(1) != static_cast<py::ssize_t>(1 + steps + kConditions))) {
      throw InputError("out must have four columns, or four more than there are kernels");
    }
    const auto columns = static_cast<std::size_t>(out.shape(1));
    const std::size_t times = columns - kConditions;
    double* const rows = out.mutable_data();
    const double end = now() + deadline_s;
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    std::vector<Conditions> conditions(static_cast<std::size_t>(out.shape(0)),
                                       {kUnknown, kUnknown, kUnknown});
    std::size_t done = 0;
    bool interrupted = false;
    std::unique_ptr<Runner::Watch> watch;
    {
      const Exclusive exclusive;
      watch = runner_->watch(least_throughput);
    }
    while (done < conditions.size() && !interrupted && (done == 0 || now() <= end)) {
      {
        const Exclusive exclusive;
        double* row = rows + done * columns;
        if (watch) watch->monitor.await_cores(end);
        runner_->flush();
        problem_->mark_written();
        std::fill_n(row + 1, times - 1, 0.0);
        row[0] = runner_->sample(invocations, {row + 1, times - 1});
        for (std::size_t k = 0; k < times; ++k) row[k] /= static_cast<double>(invocations);
        if (watch) watch->monitor.sampled(conditions[done]);
      }
      ++done;
      interrupted = PyErr_CheckSignals() != 0;
    }
    {
      const Exclusive exclusive;
      if (watch) watch->monitor.finish();
    }
    for (std::size_t i = 0; i < done; ++i) {
      const Conditions& c = conditions[i];
      double* to = rows + i * columns + times;
      to[0] = c.cpu_share;
      to[1] = c.throughput;
      to[2] = c.clock_Hz;
    }
    if (interrupted) throw py::error_already_set();
    return static_cast<std::int64_t>(done);
  }

  // Runs the instances [begin, end) once and returns the seconds that took.
  double run_range(std::int64_t begin, std::int64_t end) {
    if (begin < 0 || end <= begin || end > problem_->count()) {
      throw InputError("the range " + std::to_string(begin) + " to " + std::to_string(end) +
                       " is empty or outside 0 to " + std::to_string(problem_->count()));
    }
    const Exclusive exclusive;
    problem_->mark_written();
    return runner_->run_range({begin, end});
  }

  void fill(bool outputs) {
    const Exclusive exclusive;
    problem_->fill(outputs);
  }

  void copy_in(const std::string& name, const py::array& values) {
    const Array& a = problem_->array(name);
    const bool shape = a.rows == 1 ? values.ndim() == 1 && values.shape(0) == a.columns
                                   : values.ndim() == 2 && values.shape(0) == a.rows &&
                                         values.shape(1) == a.columns;
    if (!shape || !values.dtype().is(numpy_dtype(a.type)) ||
        (values.flags() & py::array::c_style) == 0) {
      throw InputError("array '" + name + "' must be C-contiguous " + dtype_name(a.type) +
                       " of shape " + shape_text(a));
    }
    const void* source = values.data();
    const Exclusive exclusive;
    problem_->copy_in(name, source);
  }

  py::array copy_out(const std::string& name) const {
    const Array& a = problem_->any_array(name);
    std::vector<py::ssize_t> shape{a.columns};
    if (a.rows > 1) shape.insert(shape.begin(), a.rows);
    py::array out(numpy_dtype(a.type), shape);
    void* target = out.mutable_data();
    const Exclusive exclusive;
    problem_->copy_out(a, target);
    return out;
  }

  py::array peek(const std::string& name, const IndexArray& positions) const {
    const Array& a = problem_->array(name);
    const py::ssize_t count = positions.size();
    py::array out(numpy_dtype(a.type), count);
    const std::int64_t* at = positions.data();
    auto* to = static_cast<std::byte*>(out.mutable_data());
    const Exclusive exclusive;
    for (py::ssize_t i = 0; i < count; ++i, to += dtype_size(a.type)) {
      problem_->peek(a, at[i], to);
    }
    return out;
  }

  std::pair<std::uint64_t, std::uint64_t> digest(const std::string& name) const {
    const Exclusive exclusive;
    return problem_->digest(name);
  }

  void poke(const std::string& name, const IndexArray& positions,
            const py::array_t<double, py::array::c_style>& values) {
    const Array& a = problem_->array(name);
    if (values.size() != positions.size()) {
      throw InputError("poke needs as many values as positions");
    }
    const std::int64_t* at = positions.data();
    const double* from = values.data();
    const py::ssize_t count = positions.size();
    const Exclusive exclusive;
    for (py::ssize_t i = 0; i < count; ++i) problem_->poke(a, at[i], from[i]);
  }

  std::map<std::string, py::dict> arrays() const {
    std::map<std::string, py::dict> all;
    for (const Array& a : problem_->arrays()) {
      py::dict d;
      d["dtype"] = dtype_name(a.type);
      d["rows"] = a.rows;
      d["columns"] = a.columns;
      d["written"] = a.written;
      d["salt"] = a.salt;
      all[a.name] = d;
    }
    return all;
  }

  // Apart from the rest: the kernel walks the page tables for it.
  std::string pages() const { return problem_->obtained_pages(); }

  py::dict obtained() const {
    py::dict d;
    runner_->describe(d);
    d["footprint_B"] = problem_->footprint_B();
    d["count"] = problem_->count();
    py::list stages;
    for (const Stage& stage : problem_->stages()) stages.append(stage.kernel);
    d["stages"] = stages;
    d["facts"] = problem_->facts();
    return d;
  }

 private:
  static void check_invocations(std::int64_t invocations) {
    if (invocations < 1) throw InputError("the number of invocations must be at least 1");
  }

  static std::string shape_text(const Array& a) {
    const std::string columns = std::to_string(a.columns);
    return a.rows == 1 ? "(" + columns + ",)" : "(" + std::to_string(a.rows) + ", " + columns + ")";
  }

  Team team_;
  std::string kernel_;
  std::unique_ptr<Problem> problem_;
  std::unique_ptr<Runner> runner_;
};

py::dict topology() {
  const Topology& machine = Topology::instance();
  py::list caches;
  for (const Cache& c : machine.caches()) {
    py::dict d;
    d["level"] = c.level;
    d["size_B"] = c.size_B;
    d["line_B"] = c.line_B;
    d["instances"] = c.instances;
    d["shared_by"] = c.shared_by;
    caches.append(d);
  }
  py::list kinds;
  for (const int unit : machine.allowed_units()) kinds.append(machine.kind_of(unit));
  py::dict d;
  d["units"] = machine.allowed_units();
  d["core_kinds"] = kinds;
  d["cores"] = machine.cores();
  d["packages"] = machine.packages();
  d["numa_nodes"] = machine.numa_nodes();
  d["caches"] = caches;
  d["last_level_cache_B"] = machine.last_level_cache_B();
  return d;
}

py::dict build() {
  py::dict d;
  d["compiler"] = MEMKERN_COMPILER;
  d["flags"] = MEMKERN_FLAGS;
  d["version"] = MEMKERN_VERSION;
  d["commit"] = MEMKERN_COMMIT;
  d["highway"] = MEMKERN_HIGHWAY;
  d["hwloc"] = HWLOC_API_VERSION;
  d["isas"] = supported_isas();
  return d;
}

}  // namespace

PYBIND11_MODULE(_memkern, m) {
  m.doc() = "memkern's kernels, sampler and buffers; use the memkern package instead.";

  translate_errors();

  m.def("topology", &topology);
  m.def("build", &build);
  m.def("clock_tick", &clock_tick, "Smallest step of the clock, in seconds.");
  m.def("supported_isas", &supported_isas);
  m.def(
      "memory_limit",
      [](const std::string& root) {
        const MemoryLimit limit = memory_limit(root);
        return py::make_tuple(limit.available_B, limit.source);
      },
      py::arg("root") = "");
  m.def(
      "running_threads",
      [](const std::string& root) {
        std::vector<std::tuple<int, std::string, int>> all;
        for (const RunningThread& t : running_threads(root)) {
          all.emplace_back(t.process, t.command, t.unit);
        }
        return all;
      },
      py::arg("root") = "", "Threads of other processes that run: process, command, unit.");
  m.def(
      "release_memory",
      [](std::int64_t below_B) {
        const Exclusive exclusive;
        Arena::release_pool(below_B);
      },
      py::arg("below_B") = INT64_MAX);
  m.def("entries", [] {
    using Row = std::tuple<std::string, std::string, std::string, std::string, std::string, int,
                           std::string>;
    std::vector<Row> all;
    for (const RegisteredEntry& e : registered_entries()) {
      all.emplace_back(e.kernel, e.variant, e.isa, e.dtype, e.index, e.unroll, e.form);
    }
    return all;
  });

  py::class_<Prepared, Prepared::Holder>(m, "Prepared")
      .def(py::init(&Prepared::make))
      .def("candidates", &Prepared::candidates)
      .def("select", &Prepared::select, py::arg("variant"), py::arg("isa"))
      .def("run", &Prepared::run, py::arg("invocations"))
      .def("run_range", &Prepared::run_range, py::arg("begin"), py::arg("end"))
      .def("sample", &Prepared::sample, py::arg("out").noconvert(), py::arg("invocations"),
           py::arg("deadline_s"), py::arg("least_throughput") = 0.0)
      .def("fill", &Prepared::fill, py::arg("outputs"))
      .def("copy_in", &Prepared::copy_in, py::arg("name"), py::arg("values"))
      .def("copy_out", &Prepared::copy_out, py::arg("name"))
      .def("peek", &Prepared::peek, py::arg("name"), py::arg("positions"))
      .def("digest", &Prepared::digest, py::arg("name"))
      .def("poke", &Prepared::poke, py::arg("name"), py::arg("positions"), py::arg("values"))
      .def("arrays", &Prepared::arrays)
      .def("obtained", &Prepared::obtained)
      .def("pages", &Prepared::pages);
}

}  // namespace memkern
