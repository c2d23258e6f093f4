// A prepared case: its arguments and its arrays. The constructor of a family's class adds the
// arrays that the kernel declares, and inputs; first touch, copies, fills and checks of bounds are
// done here for all of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/team.hpp"
#include "engine/inputs.hpp"
#include "engine/registry.hpp"

namespace memkern {

// Partition boundaries: worker w's part is [boundaries[w], boundaries[w + 1]). Empty for equal
// parts.
using Boundaries = std::vector<std::int64_t>;

// An array of a case. Every element has a value that follows from its position, so that results
// can be checked in closed form: fill_value(i, salt), which is exact in every type.
struct Array {
  std::string name;
  DType type = DType::F64;
  std::int64_t rows = 1;  // workers, where each has a private copy
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  // elements
  bool written = false;         // by the kernel
  std::uint32_t salt = 0;
  DeviceMemory* memory = nullptr;  // null: memory of this process
  std::size_t slot = 0;
  std::int64_t offset_B = 0;  // of the first element in its slot
  Buffer* buffer = nullptr;
  std::byte* data = nullptr;
};

// A kernel that an invocation runs, and its arguments.
struct Stage {
  std::string kernel;
  const void* args = nullptr;
};

class Problem {
 public:
  Problem(const Declaration& declaration, const Team& team, const Placement& placement);
  virtual ~Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  virtual const void* args() const = 0;
  // The kernels of an invocation that runs several in turn; a single kernel runs on args().
  virtual std::vector<Stage> stages() const { return {}; }
  virtual std::int64_t count() const = 0;
  virtual std::string index_dtype() const { return ""; }
  // Partition of the static schedule; of both parts, one after the other, if inputs split them.
  virtual Boundaries boundaries() const { return {}; }
  // Columns of the record from the preparation, such as the time of a conversion.
  virtual std::map<std::string, double> facts() const { return {}; }
  // Bytes of untimed background traffic of its bodies so far, in proportion to the time of samples;
  // NaN without any.
  virtual double moved_B() const { return std::nan(""); }
  // Whether this entry can run on these inputs.
  virtual bool runs(const RegisteredEntry&) const { return true; }
  // Whether its bodies may write arrays that they are only to read.
  virtual bool may_write_inputs() const { return false; }
  // Whether its workers wait for each other, so that all must run simultaneously.
  virtual bool needs_every_worker() const { return false; }
  // Whether it has to be finished between two invocations.
  virtual bool needs_finish() const { return false; }

  const std::vector<Array>& arrays() const { return arrays_; }
  const Array& array(const std::string& name) const;
  // Also finds index arrays and data.
  const Array& any_array(const std::string& name) const;
  // Read by the first call only, because the kernel walks the page tables for it.
  const std::string& obtained_pages();
  double misplaced_share() const { return arena_.misplaced_share(); }
  std::string pages_refused() const { return arena_.pages_refused(); }
  std::int64_t footprint_B() const;

  // Changes the values that fill() writes, unless the seed is 0. To be called before any fill().
  void set_seed(std::int64_t seed);
  // Sets the arrays that kernels read, and with `outputs` those that they write, to the values by
  // position, unless they are known to hold them.
  void fill(bool outputs);
  // To be called before a run: written arrays will hold results, so that fill() sets them again.
  void mark_written();
  // Names the array in which every run receives values of other ranks. To be called before any run.
  void set_exchanged(const std::string& name) { exchanged_ = name; }
  // Row-major copies of whole arrays, without the padding between rows.
  void copy_in(const std::string& name, const void* source);
  void copy_out(const Array& array, void* target) const;
  // Sum modulo 2^64 and exclusive or of all elements of an array, index array or data, taken as
  // unsigned integers.
  std::pair<std::uint64_t, std::uint64_t> digest(const std::string& name) const;
  // Elements by row * columns + column; all positions are checked before the first is read or
  // written. Of several values for one position, the last counts.
  double peek(const Array& array, std::int64_t position) const;
  void peek(const Array& array, std::span<const std::int64_t> positions, void* to) const;
  void poke(const Array& array, std::int64_t position, double value);
  void poke(const Array& array, std::span<const std::int64_t> positions,
            std::span<const double> values);

 protected:
  // The constructor adds exactly the arrays that the kernel declares, before commit(); otherwise
  // these functions throw InputError.
  void add_array(const std::string& name, DType type, std::int64_t columns, bool per_worker,
                 const Boundaries& boundaries = {});
  // An array in other memory than the case's arrays.
  void add_array_in(DeviceMemory& memory, const std::string& name, DType type,
                    std::int64_t columns);
  void commit();
  // Adds an index array of the type that the kernel reads, placed like any other array. commit()
  // copies the values and checks that the copies lie in [low, bound). `tail` zeros follow, for
  // vectors that read past the last index. If values.data is null, the family writes the indices
  // itself, after checking them. See Arena::request for `pooled`.
  void add_indices(const std::string& name, const IndexView& values, DType type, std::int64_t low,
                   std::int64_t bound, const Boundaries& boundaries = {}, std::int64_t tail = 0,
                   bool pooled = true);
  // Adds an array of input values, copied and placed like indices.
  void add_data(const std::string& name, const DataView& values, const Boundaries& boundaries = {},
                std::int64_t tail = 0);
  std::byte* indices(const std::string& name) const;
  // Throws InputError unless an index array, after commit(), ascends from 0 to `last`.
  void check_starts(const std::string& name, std::int64_t last) const;
  std::byte* data(const std::string& name) const;
  // Copy, owned by the case, of a few indices that all workers read, checked to lie in [0, bound).
  const void* own_indices(const std::string& name, const std::vector<std::int64_t>& values,
                          DType type, std::int64_t bound);
  // Copy, owned by the case, in memory that its kernels can read.
  template <class T>
  T* own(const std::vector<T>& values) {
    return static_cast<T*>(own_bytes(values.data(), std::ssize(values) * std::int64_t{sizeof(T)}));
  }
  const std::vector<DeclaredArray>& declared() const { return declared_; }
  const Team& team() const { return team_; }
  // Null if the case runs on the processor.
  DeviceMemory* device() const { return arena_.device(); }
  // Number of rows of the arrays that have a row per worker.
  int workers() const { return workers_; }

 private:
  static void put(const Array& a, std::byte* to, const void* from, std::int64_t bytes);
  static void get(const Array& a, void* to, const std::byte* from, std::int64_t bytes);
  static void put_zeros(const Array& a, std::byte* to, std::int64_t bytes);
  // The array in memory of the process: the array itself, or `copy` if it is elsewhere.
  static const std::byte* in_host_memory(const Array& a, std::vector<std::byte>& copy);
  // Adds an array that the kernel declares.
  void declare(Array a);
  void* own_bytes(const void* from, std::int64_t bytes);
  std::byte* element(const Array& array, std::int64_t position) const;

  // An element, and its number in the caller's list.
  struct Element {
    std::byte* at;
    std::size_t number;
  };
  // Calls fn(elements, copy) for elements that lie near each other, in the order of their
  // addresses; `copy` has the bytes from the first of them to the last.
  template <class Fn>
  void in_spans(const Array& array, std::span<const std::int64_t> positions, const Fn& fn) const;

  struct Indices {
    Array array;
    IndexView values;
    std::int64_t low;
    std::int64_t bound;
    Boundaries boundaries;
    std::int64_t tail;
  };
  struct Data {
    Array array;
    DataView values;
    Boundaries boundaries;
    std::int64_t tail;
  };
  Array request(const std::string& name, DType type, std::int64_t columns, std::int64_t rows,
                const Boundaries& boundaries = {}, std::int64_t tail = 0, bool pooled = true);
  void copy_indices(const Indices& indices);
  void copy_data(const Data& data);
  void in_parts(const Boundaries& boundaries, std::int64_t size,
                const std::function<void(Range)>& fn) const;

  std::string kernel_;
  std::vector<DeclaredArray> declared_;
  const Team& team_;
  Arena arena_;
  std::int64_t offset_B_;
  int workers_;
  std::int64_t requests_ = 0;
  std::vector<Array> arrays_;
  std::vector<Indices> indices_;
  std::vector<Data> data_;
  std::string exchanged_;
  std::string obtained_pages_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::vector<std::unique_ptr<Buffer>> on_device_;
  std::vector<std::unique_ptr<Buffer>> elsewhere_;
};

using Factory = std::unique_ptr<Problem> (*)(const std::string& kernel, const std::string& dtype,
                                             const std::string& index_dtype, const Inputs& inputs,
                                             const Team& team, const Placement& placement);

// The problem that the kernel's family makes of inputs. Throws InputError if there is no such
// family, which names the known ones, or kernel, or if an integer that the kernel declares is
// missing or out of its range.
std::unique_ptr<Problem> make_problem(const std::string& kernel, const std::string& dtype,
                                      const std::string& index_dtype, const Inputs& inputs,
                                      const Team& team, const Placement& placement);

class FamilyRegistrar {
 public:
  FamilyRegistrar(const char* family, Factory factory, std::span<const Declaration> declared);
};

}  // namespace memkern
