// The Python face of every family: one class for a prepared case, and what the binary knows about
// itself and the machine.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/buffer.hpp"
#include "core/errors.hpp"
#include "core/limits.hpp"
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

class Prepared {
 public:
  Prepared(const std::string& kernel, const std::string& dtype, const std::string& index_dtype,
           const std::map<std::string, std::int64_t>& integers,
           const std::map<std::string, double>& numbers,
           const std::vector<std::pair<std::string, bool>>& arrays,
           const std::map<std::string, IndexArray>& indices, int threads, const std::string& pin,
           const std::string& pages, const std::string& numa, const std::string& schedule,
           std::int64_t chunk, const std::string& repetition, bool flush, std::int64_t seed)
      : team_({threads, pin}),
        sampler_(team_, parse_schedule(schedule, chunk), parse_repetition(repetition)),
        kernel_(kernel),
        flush_arena_(team_, Placement{}) {
    Inputs inputs;
    inputs.integers = integers;
    inputs.numbers = numbers;
    inputs.arrays = arrays;
    for (const auto& [name, array] : indices) {
      if (array.ndim() != 1) throw InputError(name + " must have one dimension");
      inputs.indices[name] = {array.data(), array.size()};
    }
    const Placement placement{parse_pages(pages), parse_numa(numa)};
    const Factory factory = find_family(kernel.substr(0, kernel.find('.')));
    problem_ = factory(kernel, dtype, index_dtype, inputs, team_, placement);
    for (const RegisteredEntry& e : registered_entries()) {
      if (kernel == e.kernel && dtype == e.dtype && problem_->index_dtype() == e.index &&
          problem_->runs(e) && is_supported(e.isa)) {
        entries_.push_back(&e);
      }
    }
    if (entries_.empty()) {
      throw InputError("kernel '" + kernel + "' has no variant for " + dtype + " values" +
                       (index_dtype.empty() ? "" : " and " + index_dtype + " indices"));
    }
    if (flush) {
      const std::int64_t bytes =
          2 * std::max<std::int64_t>(Topology::instance().last_level_cache_B(), 1 << 20);
      flush_arena_.request(bytes, 1);
      flush_arena_.commit();
      flusher_.emplace(team_, flush_arena_[0].data(), bytes);
    }
    problem_->set_seed(seed);
    problem_->fill(false);
    select_entry(*entries_.front());
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
  static Holder make(const std::string& kernel, const std::string& dtype,
                     const std::string& index_dtype,
                     const std::map<std::string, std::int64_t>& integers,
                     const std::map<std::string, double>& numbers,
                     const std::vector<std::pair<std::string, bool>>& arrays,
                     const std::map<std::string, IndexArray>& indices, int threads,
                     const std::string& pin, const std::string& pages, const std::string& numa,
                     const std::string& schedule, std::int64_t chunk, const std::string& repetition,
                     bool flush, std::int64_t seed) {
    const Exclusive exclusive;
    return Holder(new Prepared(kernel, dtype, index_dtype, integers, numbers, arrays, indices,
                               threads, pin, pages, numa, schedule, chunk, repetition, flush,
                               seed));
  }

  std::vector<std::pair<std::string, std::string>> candidates() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string& isa : supported_isas()) {
      for (const RegisteredEntry* e : entries_) {
        if (e->isa == isa) all.emplace_back(e->variant, e->isa);
      }
    }
    return all;
  }

  void select(const std::string& variant, const std::string& isa) {
    const Exclusive exclusive;
    for (const RegisteredEntry* e : entries_) {
      if (variant == e->variant && isa == e->isa) return select_entry(*e);
    }
    throw InputError("kernel '" + kernel_ + "' has no variant '" + variant + "' for " + isa +
                     " on this machine with these inputs");
  }

  double run(std::int64_t invocations) {
    check_invocations(invocations);
    const Exclusive exclusive;
    const Team::Session session(team_);
    problem_->mark_written();
    return sampler_.sample({&step_, 1}, invocations);
  }

  // Fills `out` with seconds per invocation, sample by sample, and stops after the first that
  // ends later than `deadline_s` from now. What a signal interrupts keeps the samples done;
  // the rest of `out` stays as it was.
  std::int64_t sample(py::array_t<double, py::array::c_style>& out, std::int64_t invocations,
                      double deadline_s) {
    check_invocations(invocations);
    if (out.ndim() != 1) throw InputError("out must have one dimension");
    double* values = out.mutable_data();
    const double end = now() + deadline_s;
    std::int64_t done = 0;
    for (; done < out.size(); ++done) {
      if (done > 0 && now() > end) break;
      {
        const Exclusive exclusive;
        if (flusher_) flusher_->flush();
        const Team::Session session(team_);
        problem_->mark_written();
        values[done] = sampler_.sample({&step_, 1}, invocations) / static_cast<double>(invocations);
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    return done;
  }

  // Runs the instances [begin, end) once and returns the seconds that took.
  double run_range(std::int64_t begin, std::int64_t end) {
    if (begin < 0 || end <= begin || end > problem_->count()) {
      throw InputError("the range " + std::to_string(begin) + " to " + std::to_string(end) +
                       " is empty or outside 0 to " + std::to_string(problem_->count()));
    }
    const Exclusive exclusive;
    const Team::Session session(team_);
    problem_->mark_written();
    range_ = {begin, end, &step_};
    const Step part{run_part, step_.finish == nullptr ? nullptr : finish_part, &range_,
                    end - begin};
    return sampler_.sample({&part, 1}, 1);
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
    const Array& a = problem_->array(name);
    std::vector<py::ssize_t> shape{a.columns};
    if (a.rows > 1) shape.insert(shape.begin(), a.rows);
    py::array out(numpy_dtype(a.type), shape);
    void* target = out.mutable_data();
    const Exclusive exclusive;
    problem_->copy_out(name, target);
    return out;
  }

  py::array_t<double> peek(const std::string& name, const IndexArray& positions) const {
    const Array& a = problem_->array(name);
    py::array_t<double> out(positions.size());
    const std::int64_t* at = positions.data();
    double* values = out.mutable_data();
    for (py::ssize_t i = 0; i < positions.size(); ++i) values[i] = problem_->peek(a, at[i]);
    return out;
  }

  void poke(const std::string& name, const IndexArray& positions,
            const py::array_t<double, py::array::c_style>& values) {
    const Array& a = problem_->array(name);
    if (values.size() != positions.size()) {
      throw InputError("poke needs as many values as positions");
    }
    const std::int64_t* at = positions.data();
    for (py::ssize_t i = 0; i < positions.size(); ++i) problem_->poke(a, at[i], values.data()[i]);
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

  py::dict obtained() const {
    py::dict d;
    d["threads"] = team_.size();
    d["pin"] = team_.pin_obtained();
    d["pages"] = problem_->obtained_pages();
    d["footprint_B"] = problem_->footprint_B();
    d["count"] = problem_->count();
    d["variant"] = entry_->variant;
    d["isa"] = entry_->isa;
    return d;
  }

 private:
  struct Part {
    std::int64_t begin;
    std::int64_t end;
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

  static bool is_supported(const std::string& isa) {
    for (const std::string& name : supported_isas()) {
      if (name == isa) return true;
    }
    return false;
  }

  static void check_invocations(std::int64_t invocations) {
    if (invocations < 1) throw InputError("the number of invocations must be at least 1");
  }

  static std::string shape_text(const Array& a) {
    const std::string columns = std::to_string(a.columns);
    return a.rows == 1 ? "(" + columns + ",)" : "(" + std::to_string(a.rows) + ", " + columns + ")";
  }

  void select_entry(const RegisteredEntry& entry) {
    entry_ = &entry;
    step_ = {entry.body, entry.finish, problem_->args(), problem_->count()};
  }

  Team team_;
  Sampler sampler_;
  std::string kernel_;
  std::unique_ptr<Problem> problem_;
  std::vector<const RegisteredEntry*> entries_;
  const RegisteredEntry* entry_ = nullptr;
  Step step_;
  Part range_{};
  Arena flush_arena_;
  std::optional<CacheFlusher> flusher_;
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
  py::dict d;
  d["units"] = machine.allowed_units();
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

  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(std::move(p));
    } catch (const InputError& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const MemoryError& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    }
  });

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
  m.def("release_memory", [] {
    const Exclusive exclusive;
    Arena::release_pool();
  });
  m.def("entries", [] {
    std::vector<std::tuple<std::string, std::string, std::string, std::string, std::string>> all;
    for (const RegisteredEntry& e : registered_entries()) {
      all.emplace_back(e.kernel, e.variant, e.isa, e.dtype, e.index);
    }
    return all;
  });

  py::class_<Prepared, Prepared::Holder>(m, "Prepared")
      .def(py::init(&Prepared::make), py::kw_only(), py::arg("kernel"), py::arg("dtype"),
           py::arg("index_dtype"), py::arg("integers"), py::arg("numbers"), py::arg("arrays"),
           py::arg("indices"), py::arg("threads"), py::arg("pin"), py::arg("pages"),
           py::arg("numa"), py::arg("schedule"), py::arg("chunk"), py::arg("repetition"),
           py::arg("flush"), py::arg("seed"))
      .def("candidates", &Prepared::candidates)
      .def("select", &Prepared::select, py::arg("variant"), py::arg("isa"))
      .def("run", &Prepared::run, py::arg("invocations"))
      .def("run_range", &Prepared::run_range, py::arg("begin"), py::arg("end"))
      .def("sample", &Prepared::sample, py::arg("out").noconvert(), py::arg("invocations"),
           py::arg("deadline_s"))
      .def("fill", &Prepared::fill, py::arg("outputs"))
      .def("copy_in", &Prepared::copy_in, py::arg("name"), py::arg("values"))
      .def("copy_out", &Prepared::copy_out, py::arg("name"))
      .def("peek", &Prepared::peek, py::arg("name"), py::arg("positions"))
      .def("poke", &Prepared::poke, py::arg("name"), py::arg("positions"), py::arg("values"))
      .def("arrays", &Prepared::arrays)
      .def("obtained", &Prepared::obtained);
}

}  // namespace memkern
