// The Python module _memkern: a class for prepared cases, and functions that describe the build and
// the machine.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/buffer.hpp"
#include "core/clock.hpp"
#include "core/counters.hpp"
#include "core/errors.hpp"
#include "core/limits.hpp"
#include "core/load.hpp"
#include "core/memory.hpp"
#include "core/monitor.hpp"
#include "core/sampler.hpp"
#include "core/topology.hpp"
#include "engine/prepared.hpp"
#include "families/own/function.hpp"
#include "python/build.hpp"
#include "python/errors.hpp"
#include "python/loading.hpp"
#include "python/request.hpp"
#include "python/trace.hpp"

namespace py = pybind11;

namespace memkern {
namespace {

// All cases share workers, buffer pool and caches: one case is prepared or measured at a time.
std::mutex& machine_lock() {
  static std::mutex lock;
  return lock;
}

// Holds the machine lock. Releases Python's interpreter lock first, so that a waiting thread does
// not block the one that holds the machine lock.
class Exclusive {
 public:
  Exclusive() : lock_(machine_lock()) {}

 private:
  py::gil_scoped_release release_;
  std::lock_guard<std::mutex> lock_;
};

py::dtype numpy_dtype(DType type) { return py::dtype(dtype_name(type)); }

// Name, type, config, config1, config2, unit, and whether user code and the kernel count.
using EventTuple = std::tuple<std::string, std::uint32_t, std::uint64_t, std::uint64_t,
                              std::uint64_t, int, bool, bool>;

EventCode event_of(const EventTuple& t) {
  return std::apply([](const auto&... fields) { return EventCode{fields...}; }, t);
}

// Counts of the calling thread during a call of `function`.
std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> count_during(
    const std::vector<EventTuple>& events, const py::function& function) {
  std::vector<EventCode> codes;
  std::transform(events.begin(), events.end(), std::back_inserter(codes), event_of);
  const Team team({1, "none"});
  Counters counters(team, std::move(codes));
  std::vector<Count> counts(counters.size());
  counters.begin(0);
  function();
  counters.end(0);
  counters.sum(counts);
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> all;
  for (const Count& c : counts) all.emplace_back(c.value, c.enabled_ns, c.running_ns);
  return all;
}

// Type, config or all three of them, value, time enabled, time running, error, readings.
using StepTuple =
    std::tuple<std::uint32_t, std::variant<std::uint64_t, std::array<std::uint64_t, 3>>,
               std::uint64_t, std::uint64_t, std::uint64_t, int, std::int64_t>;

// Replaces the kernel's counters by steps; without steps the kernel counts again.
void step_events(const std::vector<StepTuple>& steps) {
  // Not destroyed, because open counters refer to their source.
  static std::vector<std::unique_ptr<SteppedEvents>> sources;
  if (steps.empty()) {
    replace_event_source(nullptr);
    return;
  }
  std::vector<SteppedEvents::Step> all;
  for (const auto& [type, given, value, enabled, running, error, readable] : steps) {
    std::array<std::uint64_t, 3> configs{};
    if (const auto* one = std::get_if<0>(&given)) {
      configs[0] = *one;
    } else {
      configs = std::get<1>(given);
    }
    all.push_back(
        {type, configs[0], {value, enabled, running}, error, readable, configs[1], configs[2]});
  }
  sources.push_back(std::make_unique<SteppedEvents>(std::move(all)));
  replace_event_source(sources.back().get());
}

// A prepared case for Python: with NumPy arrays, and the machine lock held during each call.
class PreparedBinding {
 public:
  explicit PreparedBinding(const Request& request) : prepared_(request) {}

  // Construction and destruction bind workers and use the buffer pool: both hold the machine lock.
  struct Release {
    void operator()(PreparedBinding* prepared) const {
      const Exclusive exclusive;
      delete prepared;
    }
  };
  using Holder = std::unique_ptr<PreparedBinding, Release>;
  static Holder make(const py::kwargs& arguments) {
    const Parsed request(arguments);
    const Exclusive exclusive;
    return Holder(new PreparedBinding(request));
  }

  std::vector<std::pair<std::string, std::string>> candidates() const {
    return prepared_.runner().candidates();
  }

  void select(const std::string& variant, const std::string& isa) {
    const Exclusive exclusive;
    prepared_.select(variant, isa);
  }

  double run(std::int64_t invocations) {
    const Exclusive exclusive;
    return prepared_.run(invocations);
  }

  // Writes one row of `out` per sample and returns the number of samples. Stops after the first one
  // that ends later than `deadline_s` seconds from now. Columns: seconds per invocation; if there
  // are more than ten columns, the seconds of each kernel of an invocation; the nine fields of
  // Conditions, NaN on a device. After a signal, the rows of finished samples are valid and the
  // others unchanged. With `start`, which is called immediately before each sample is timed, its
  // result replaces the deadline and signals: sampling ends when it returns false or raises an
  // exception. `events` are counted during the samples, and written to `counts`, shape (samples,
  // events, 3): value, nanoseconds enabled and running, summed over the workers. `moved_B`, shape
  // (samples,), gets the bytes per invocation of untimed background traffic, NaN for kernels
  // without any. With `parts`, a range of iterations for each row, each sample is one run of its
  // part instead. With `candidates`, the candidate of each row is selected before its sample.
  // Without `probes`, conditions are NaN. See Prepared::Sampling for `warms_up` and `cores`.
  std::int64_t sample(py::array_t<double, py::array::c_style>& out, std::int64_t invocations,
                      double deadline_s, const py::object& start,
                      const std::vector<EventTuple>& events,
                      py::array_t<double, py::array::c_style>& counts,
                      py::array_t<double, py::array::c_style>& moved_B,
                      const std::vector<std::pair<std::int64_t, std::int64_t>>& parts,
                      const std::vector<std::pair<std::string, std::string>>& candidates,
                      bool probes, bool warms_up, bool cores) {
    constexpr std::size_t kConditions = 9;
    const std::size_t steps = prepared_.runner().steps();
    if (out.ndim() != 2 || (out.shape(1) != static_cast<py::ssize_t>(1 + kConditions) &&
                            out.shape(1) != static_cast<py::ssize_t>(1 + steps + kConditions))) {
      throw InputError("out must have ten columns, or nine more than kernels");
    }
    const std::size_t event_values = 3 * events.size();
    if (!events.empty() &&
        (counts.ndim() != 3 || counts.shape(0) != out.shape(0) ||
         counts.shape(1) != static_cast<py::ssize_t>(events.size()) || counts.shape(2) != 3)) {
      throw InputError("counts must have the shape (samples, events, 3)");
    }
    if (moved_B.size() != 0 && (moved_B.ndim() != 1 || moved_B.shape(0) != out.shape(0))) {
      throw InputError("moved_B must have the shape (samples,)");
    }
    double* const moved_rows = moved_B.size() == 0 ? nullptr : moved_B.mutable_data();
    double* const event_rows = events.empty() ? nullptr : counts.mutable_data();
    std::vector<EventCode> codes;
    std::transform(events.begin(), events.end(), std::back_inserter(codes), event_of);
    std::vector<Count> counted(codes.size());
    const auto columns = static_cast<std::size_t>(out.shape(1));
    const std::size_t time_columns = columns - kConditions;
    if (!parts.empty() &&
        (std::ssize(parts) != out.shape(0) || time_columns != 1 || !events.empty())) {
      throw InputError("parts must be one for each row of ten columns, without events");
    }
    for (const auto& [begin, end] : parts) prepared_.check_range({begin, end});
    if (!candidates.empty() && std::ssize(candidates) != out.shape(0)) {
      throw InputError("candidates must be one for each row");
    }
    double* const rows = out.mutable_data();
    const double end = now() + deadline_s;
    std::vector<Conditions> conditions(static_cast<std::size_t>(out.shape(0)));
    std::size_t done = 0;
    std::exception_ptr error;
    std::function<bool()> called;
    if (!start.is_none()) {
      called = [&] {
        const py::gil_scoped_acquire acquire;
        try {
          return start().cast<bool>();
        } catch (...) {
          error = std::current_exception();
          return false;
        }
      };
    }
    std::optional<Prepared::Sampling> sampling;
    {
      const Exclusive exclusive;
      sampling.emplace(prepared_, invocations, end, std::move(codes), probes, warms_up, cores);
    }
    while (done < conditions.size() && !error &&
           (called || done == 0 || now() <= sampling->end())) {
      bool taken = false;
      {
        const Exclusive exclusive;
        double* row = rows + done * columns;
        std::optional<Range> part;
        if (!parts.empty()) part = {parts[done].first, parts[done].second};
        if (!candidates.empty()) {
          prepared_.select(candidates[done].first, candidates[done].second);
        }
        taken =
            sampling->sample(row[0], {row + 1, time_columns - 1}, conditions[done], called, counted,
                             part, moved_rows == nullptr ? nullptr : moved_rows + done);
      }
      if (!taken) break;
      double* to = event_rows == nullptr ? nullptr : event_rows + done * event_values;
      for (const Count& count : counted) {
        for (const std::uint64_t value : {count.value, count.enabled_ns, count.running_ns}) {
          *to++ = static_cast<double>(value);
        }
      }
      ++done;
      if (!called && PyErr_CheckSignals() != 0) {
        error = std::make_exception_ptr(py::error_already_set());
      }
    }
    {
      const Exclusive exclusive;
      sampling->finish();
    }
    for (std::size_t i = 0; i < done; ++i) {
      const Conditions& c = conditions[i];
      double* to = rows + i * columns + time_columns;
      for (const double value : {c.cpu_share, c.throughput, c.clock_Hz, c.exchange_s, c.moved,
                                 c.waited_share, c.absent_share, c.memory_s, c.exchange_least_s}) {
        *to++ = value;
      }
    }
    if (error) std::rethrow_exception(error);
    return static_cast<std::int64_t>(done);
  }

  std::pair<std::int64_t, double> untimed() const {
    return {prepared_.untimed(), prepared_.untimed_s()};
  }

  double run_range(std::int64_t begin, std::int64_t end) {
    const Exclusive exclusive;
    return prepared_.run_range(begin, end);
  }

  void fill(bool outputs) {
    const Exclusive exclusive;
    prepared_.problem().fill(outputs);
  }

  void copy_in(const std::string& name, const py::array& values) {
    const Array& a = prepared_.problem().array(name);
    const bool shape = a.rows == 1 ? values.ndim() == 1 && values.shape(0) == a.columns
                                   : values.ndim() == 2 && values.shape(0) == a.rows &&
                                         values.shape(1) == a.columns;
    if (!shape || !values.dtype().is(numpy_dtype(a.type)) || !is_contiguous(values)) {
      throw InputError("array '" + name + "' must be C-contiguous " + dtype_name(a.type) +
                       " of shape " + shape_text(a));
    }
    const void* source = values.data();
    const Exclusive exclusive;
    prepared_.problem().copy_in(name, source);
  }

  py::array copy_out(const std::string& name) const {
    const Array& a = prepared_.problem().any_array(name);
    std::vector<py::ssize_t> shape{a.columns};
    if (a.rows > 1) shape.insert(shape.begin(), a.rows);
    py::array out(numpy_dtype(a.type), shape);
    void* target = out.mutable_data();
    const Exclusive exclusive;
    prepared_.problem().copy_out(a, target);
    return out;
  }

  py::array peek(const std::string& name, const IndexArray& positions) const {
    const Array& a = prepared_.problem().array(name);
    const py::ssize_t count = positions.size();
    py::array out(numpy_dtype(a.type), count);
    void* to = out.mutable_data();
    const std::span<const std::int64_t> at(positions.data(), static_cast<std::size_t>(count));
    const Exclusive exclusive;
    prepared_.problem().peek(a, at, to);
    return out;
  }

  std::pair<std::uint64_t, std::uint64_t> digest(const std::string& name) const {
    const Exclusive exclusive;
    return prepared_.problem().digest(name);
  }

  void poke(const std::string& name, const IndexArray& positions,
            const py::array_t<double, py::array::c_style>& values) {
    const Array& a = prepared_.problem().array(name);
    if (values.size() != positions.size()) {
      throw InputError("poke needs as many values as positions");
    }
    const auto count = static_cast<std::size_t>(positions.size());
    const std::span<const std::int64_t> at(positions.data(), count);
    const std::span<const double> from(values.data(), count);
    const Exclusive exclusive;
    prepared_.problem().poke(a, at, from);
  }

  std::map<std::string, py::dict> arrays() const {
    std::map<std::string, py::dict> all;
    for (const Array& a : prepared_.problem().arrays()) {
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

  // Not part of obtained(), because the kernel walks the page tables for it.
  std::string pages() const { return prepared_.problem().obtained_pages(); }

  double misplaced_share() const { return prepared_.problem().misplaced_share(); }

  py::dict obtained() const {
    const Obtained o = prepared_.runner().obtained();
    const Problem& problem = prepared_.problem();
    py::dict d;
    d["variant"] = o.variant;
    d["isa"] = o.isa;
    d["threads"] = o.threads;
    d["block_threads"] = o.block_threads;
    d["pin"] = o.pin;
    // Requests that the user did not make by name, as warnings.
    std::vector<std::string> refused;
    if (!o.pin_refused.empty()) refused.push_back("threads are not pinned: " + o.pin_refused);
    if (const std::string why = problem.pages_refused(); !why.empty()) {
      refused.push_back("no huge pages were requested: " + why);
    }
    d["refused"] = refused;
    d["shared_units"] = o.shared_units;
    d["vector_B"] = o.vector_B;
    d["footprint_B"] = problem.footprint_B();
    d["count"] = problem.count();
    py::list stages;
    for (const Stage& stage : problem.stages()) stages.append(stage.kernel);
    d["stages"] = stages;
    d["steps"] = prepared_.runner().steps();
    d["facts"] = problem.facts();
    return d;
  }

 private:
  static std::string shape_text(const Array& a) {
    const std::string columns = std::to_string(a.columns);
    return a.rows == 1 ? "(" + columns + ",)" : "(" + std::to_string(a.rows) + ", " + columns + ")";
  }

  Prepared prepared_;
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
  py::list cores;
  for (const int unit : machine.allowed_units()) {
    kinds.append(machine.kind_of(unit));
    cores.append(machine.core_of(unit));
  }
  py::dict d;
  d["units"] = machine.allowed_units();
  d["core_kinds"] = kinds;
  d["core_of_unit"] = cores;
  d["cores"] = machine.cores();
  d["packages"] = machine.packages();
  d["numa_nodes"] = machine.numa_nodes();
  d["caches"] = caches;
  d["last_level_cache_B"] = machine.last_level_cache_B();
  return d;
}

// The registers eax, ebx, ecx and edx; none on other processors, or if there is no such leaf.
std::optional<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> cpuid(
    std::uint32_t leaf, std::uint32_t subleaf) {
#if defined(__x86_64__)
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
  if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d) != 0) return std::tuple{a, b, c, d};
#else
  static_cast<void>(leaf);
  static_cast<void>(subleaf);
#endif
  return {};
}

py::dict build() {
  py::dict d;
  d["compiler"] = kBuild.compiler;
  d["flags"] = kBuild.flags;
  d["version"] = kBuild.version;
  d["commit"] = kBuild.commit;
  d["highway"] = kBuild.highway;
  d["hwloc"] = HWLOC_API_VERSION;
  d["isas"] = supported_isas();
  return d;
}

}  // namespace

PYBIND11_MODULE(_memkern, m) {
  m.doc() = "memkern's kernels, sampler and buffers; use the memkern package instead.";
  restore_arithmetic();
  translate_errors();
  define_trace(m);
  m.def("topology", &topology);
  m.def(
      "describe_machine",
      [](const std::optional<std::string>& topology, int line_B, const std::vector<int>& kinds,
         std::int64_t page_B, std::optional<std::int64_t> memory_B,
         const std::optional<std::string>& widest_isa, const std::vector<std::int64_t>& nodes_B) {
        const Exclusive exclusive;
        Arena::release_pool();
        describe_memory(memory_B, nodes_B);
        if (!topology) return Topology::describe({});
        Topology::describe(MachineDescription{*topology, line_B, kinds, page_B, widest_isa});
      },
      py::arg("topology") = py::none(), py::arg("line_B") = 64,
      py::arg("kinds") = std::vector<int>(), py::arg("page_B") = 0,
      py::arg("memory_B") = py::none(), py::arg("widest_isa") = py::none(),
      py::arg("nodes_B") = std::vector<std::int64_t>(),
      "Replaces this machine by a described one, for tests; without a topology by itself again.");
  m.def("cpuid", &cpuid, py::arg("leaf"), py::arg("subleaf") = 0);
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
  m.def("measure_loads", &measure_loads, py::arg("sizes_B"), py::arg("most_s"),
        py::call_guard<py::gil_scoped_release>(),
        "Seconds of a dependent load from a random line of increasing bytes, and from memory.");
  m.def("run_queue_delays_known", &run_queue_delays_known, py::arg("root") = "",
        "Whether the system tells how long each thread waits for a processor; root is that of "
        "running_threads.");
  m.def(
      "running_threads",
      [](const std::string& root) {
        std::vector<std::tuple<int, std::string, int>> all;
        for (const RunningThread& t : running_threads(root)) {
          all.emplace_back(t.process, t.command, t.unit);
        }
        return all;
      },
      py::arg("root") = "", "Running threads of other processes: process, command, unit.");
  m.def(
      "release_memory",
      [](std::int64_t below_B) {
        const Exclusive exclusive;
        Arena::release_pool(below_B);
      },
      py::arg("below_B") = INT64_MAX);
  m.def(
      "why_not_counted", [](const EventTuple& event) { return why_not_counted(event_of(event)); },
      py::arg("event"),
      "Why an event can't be counted here, as the end of a sentence; empty if it can.");
  m.def("count", &count_during, py::arg("events"), py::arg("function"),
        "Calls a function, and returns value, nanoseconds enabled and running of each event.");
  m.def("step_events", &step_events, py::arg("steps"),
        "Replaces the kernel's counters, for tests; without steps they count again.");
  m.def("entries", [] {
    using Row = std::tuple<std::string, std::string, std::string, std::string, std::string, int,
                           std::string>;
    std::vector<Row> all;
    for (const RegisteredEntry& e : registered_entries()) {
      all.emplace_back(e.kernel, e.variant, e.isa, e.dtype, e.index, e.unroll, e.template_variant);
    }
    return all;
  });

  m.def("body_offsets", [] {
    // Offset of each entry's body in the file of this module, in the order of entries().
    std::vector<std::uintptr_t> all;
    for (const RegisteredEntry& e : registered_entries()) {
      Dl_info found{};
      const auto* body = reinterpret_cast<const void*>(e.body);
      const bool known = dladdr(body, &found) != 0;
      const auto base = reinterpret_cast<std::uintptr_t>(found.dli_fbase);
      all.push_back(known ? reinterpret_cast<std::uintptr_t>(body) - base : 0);
    }
    return all;
  });

  m.def(
      "declarations",
      [] {
        using Arrays = std::vector<std::tuple<std::string, char, std::string>>;
        using Integers = std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>;
        std::vector<std::tuple<std::string, Arrays, double, std::string, double, Integers>> all;
        for (const Declaration& d : declarations()) {
          Arrays arrays;
          for (const DeclaredArray& a : arrays_of(d)) arrays.emplace_back(a.name, a.role, a.shape);
          Integers integers;
          for (const DeclaredInteger& i : d.integers) {
            integers.emplace_back(i.name, i.least, i.most);
          }
          all.emplace_back(d.kernel, arrays, d.flops, d.scalars, d.amos, integers);
        }
        return all;
      },
      "All kernels: name, arrays (name, role, shape), flops, scalars, amos, integers (name, least, "
      "most).");

  m.def(
      "add_function",
      [](const std::string& kernel, std::uintptr_t address, const std::string& dtype,
         const std::vector<Function::Argument>& arrays, const std::vector<std::string>& integers,
         const std::vector<std::string>& numbers) {
        const Exclusive exclusive;
        add_function({kernel, address, dtype, arrays, integers, numbers});
      },
      py::arg("kernel"), py::arg("address"), py::arg("dtype"), py::arg("arrays"),
      py::arg("integers"), py::arg("numbers"),
      "Registers a function as a kernel; arrays are (name, role, dtype) in its order.");

  py::class_<PreparedBinding, PreparedBinding::Holder>(m, "Prepared")
      .def(py::init(&PreparedBinding::make))
      .def("candidates", &PreparedBinding::candidates)
      .def("select", &PreparedBinding::select, py::arg("variant"), py::arg("isa"))
      .def("run", &PreparedBinding::run, py::arg("invocations"))
      .def("run_range", &PreparedBinding::run_range, py::arg("begin"), py::arg("end"))
      .def("sample", &PreparedBinding::sample, py::arg("out").noconvert(), py::arg("invocations"),
           py::arg("deadline_s"), py::arg("start") = py::none(),
           py::arg("events") = std::vector<EventTuple>(),
           py::arg("counts").noconvert() = py::array_t<double, py::array::c_style>(),
           py::arg("moved_B").noconvert() = py::array_t<double, py::array::c_style>(),
           py::arg("parts") = std::vector<std::pair<std::int64_t, std::int64_t>>(),
           py::arg("candidates") = std::vector<std::pair<std::string, std::string>>(),
           py::arg("probes") = true, py::arg("warms_up") = true, py::arg("cores") = true)
      .def("untimed", &PreparedBinding::untimed)
      .def("fill", &PreparedBinding::fill, py::arg("outputs"))
      .def("copy_in", &PreparedBinding::copy_in, py::arg("name"), py::arg("values"))
      .def("copy_out", &PreparedBinding::copy_out, py::arg("name"))
      .def("peek", &PreparedBinding::peek, py::arg("name"), py::arg("positions"))
      .def("digest", &PreparedBinding::digest, py::arg("name"))
      .def("poke", &PreparedBinding::poke, py::arg("name"), py::arg("positions"), py::arg("values"))
      .def("arrays", &PreparedBinding::arrays)
      .def("obtained", &PreparedBinding::obtained)
      .def("pages", &PreparedBinding::pages)
      .def("misplaced_share", &PreparedBinding::misplaced_share);
}

}  // namespace memkern
