// One case of a family, prepared: its arguments and its arrays. A family says what it needs in
// its constructor; copying, filling, first touch and bounds are done here once for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/team.hpp"
#include "engine/registry.hpp"

namespace memkern {

enum class DType { F32, F64, I32, I64, U32, U64 };
DType parse_dtype(const std::string& text);
const char* dtype_name(DType type);
std::int64_t dtype_size(DType type);

// Non-owning view of the caller's indices. They are copied, and checked on the copy, before use.
struct IndexView {
  const void* data = nullptr;
  std::int64_t size = 0;
  bool narrow = false;  // of 32 bits each, not 64
  std::int64_t operator[](std::int64_t i) const {
    return narrow ? std::int64_t{static_cast<const std::int32_t*>(data)[i]}
                  : static_cast<const std::int64_t*>(data)[i];
  }
};

// Non-owning view of the caller's numbers.
struct DataView {
  const void* data = nullptr;
  std::int64_t size = 0;
  DType type = DType::F64;
};

// Where the parts of an array begin that belong to each worker, and where the last one ends;
// empty for equal parts.
using Boundaries = std::vector<std::int64_t>;

// What a caller passes to a family: named integers and named index arrays.
class Inputs {
 public:
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> numbers;
  // The spec's arrays in its order, by name and whether the kernel writes them.
  std::vector<std::pair<std::string, bool>> arrays;
  std::map<std::string, IndexView> indices;
  std::map<std::string, DataView> data;

  std::int64_t integer(const std::string& name, std::int64_t least) const;
  const IndexView& index(const std::string& name) const;
  // One that must have so many entries.
  const IndexView& index(const std::string& name, std::int64_t length) const;
  std::vector<std::int64_t> copy(const std::string& name) const;
};

// The type of a kernel's values: float32 or float64.
DType parse_value_dtype(const std::string& text);
// The type of its indices: int32 or int64.
DType parse_index_dtype(const std::string& text);

// An array of a case. Every element has a value that follows from its position, so that results
// can be checked in closed form: value(i) = ((i * 2654435761 + salt) mod 2^32) >> 9, a whole
// number below 2^23, exact in every type.
struct Array {
  std::string name;
  DType type = DType::F64;
  std::int64_t rows = 1;  // workers, where each has a private copy
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  // elements
  bool written = false;         // by the kernel
  std::uint32_t salt = 0;
  std::size_t slot = 0;
  std::int64_t offset_B = 0;  // of the first element in its slot
  std::byte* data = nullptr;
};

// A kernel that an invocation runs, and its arguments.
struct Stage {
  std::string kernel;
  const void* args = nullptr;
};

class Problem {
 public:
  Problem(const Team& team, const Placement& placement);
  virtual ~Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  virtual const void* args() const = 0;
  // Where one invocation is several kernels in turn; a single kernel runs on args().
  virtual std::vector<Stage> stages() const { return {}; }
  virtual std::int64_t count() const = 0;
  virtual DType dtype() const { return DType::F64; }
  virtual std::string index_dtype() const { return ""; }
  // Boundaries of the static schedule's parts, where these shall not be equal.
  virtual Boundaries boundaries() const { return {}; }
  // What preparing found out that belongs into the record.
  virtual std::map<std::string, double> facts() const { return {}; }
  // Whether this variant may be run on these inputs.
  virtual bool runs(const RegisteredEntry&) const { return true; }

  const std::vector<Array>& arrays() const { return arrays_; }
  const Array& array(const std::string& name) const;
  // Also one of the inputs that a case holds.
  const Array& any_array(const std::string& name) const;
  // Read back once, when first asked: the kernel walks the page tables for it.
  const std::string& obtained_pages();
  std::int64_t footprint_B() const;

  // Other values for another seed; 0 leaves them as they are. Before anything is filled.
  void set_seed(std::int64_t seed);
  // Gives arrays that hold something else their values by position: those that kernels read,
  // and on demand those that they write.
  void fill(bool outputs);
  // Says that written arrays hold results now.
  void mark_written();
  // Row-major copies of whole arrays, without the padding between rows.
  void copy_in(const std::string& name, const void* source);
  void copy_out(const Array& array, void* target) const;
  // Sum modulo 2^64 and exclusive or of all elements of an array or index array, read as unsigned
  // words.
  std::pair<std::uint64_t, std::uint64_t> digest(const std::string& name) const;
  // Single elements by row * columns + column; bounds are checked.
  double peek(const Array& array, std::int64_t position) const;
  void peek(const Array& array, std::int64_t position, void* to) const;
  void poke(const Array& array, std::int64_t position, double value);

 protected:
  // Declared in the constructor, before commit().
  std::size_t add_array(const std::string& name, DType type, std::int64_t columns, bool per_worker,
                        bool written, const Boundaries& boundaries = {});
  void commit();
  // Indices as an array of their own in the type that the kernel reads, placed like all others.
  // commit() copies them and checks the copy to lie in [low, bound).
  // `tail` zeros follow, for vectors that read past the last. Without a source it is for the family
  // to fill them, with indices that it has checked.
  void add_indices(const std::string& name, const IndexView& values, DType type, std::int64_t low,
                   std::int64_t bound, const Boundaries& boundaries = {}, std::int64_t tail = 0);
  // Numbers that are an input, copied and placed like indices.
  void add_data(const std::string& name, const DataView& values, const Boundaries& boundaries = {},
                std::int64_t tail = 0);
  std::byte* indices(const std::string& name) const;
  // After commit(): that an index array ascends from 0 to `last`.
  void check_starts(const std::string& name, std::int64_t last) const;
  std::byte* data(const std::string& name) const;
  // A case-owned copy of few indices, which all workers read, checked to lie in [0, bound).
  const void* own_indices(const std::string& name, const std::vector<std::int64_t>& values,
                          DType type, std::int64_t bound);
  // A case-owned copy, where its kernels can read it.
  template <class T>
  T* own(const std::vector<T>& values) {
    return static_cast<T*>(own_bytes(values.data(), std::ssize(values) * std::int64_t{sizeof(T)}));
  }
  const Team& team() const { return team_; }
  // Null where the case is one of the process itself.
  DeviceMemory* device() const { return arena_.device(); }
  // Of which an array has a row each, where it has rows.
  int workers() const { return workers_; }

 private:
  void put(std::byte* to, const void* from, std::int64_t bytes) const;
  void get(void* to, const std::byte* from, std::int64_t bytes) const;
  void put_zeros(std::byte* to, std::int64_t bytes) const;
  // Where the processor can read an array: its own place, or `copy`, which then holds it.
  const std::byte* at_hand(const Array& a, std::vector<std::byte>& copy) const;
  void* own_bytes(const void* from, std::int64_t bytes);
  std::byte* element(const Array& array, std::int64_t position) const;

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
                const Boundaries& boundaries = {}, std::int64_t tail = 0);
  void copy_indices(const Indices& indices);
  void copy_data(const Data& data);
  void in_parts(const Boundaries& boundaries, std::int64_t size,
                const std::function<void(Range)>& fn) const;

  const Team& team_;
  Arena arena_;
  std::int64_t offset_B_;
  int workers_;
  std::int64_t requests_ = 0;
  std::vector<Array> arrays_;
  std::vector<Indices> indices_;
  std::vector<Data> data_;
  std::string obtained_pages_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::vector<std::unique_ptr<Buffer>> on_device_;
};

using Factory = std::unique_ptr<Problem> (*)(const std::string& kernel, const std::string& dtype,
                                             const std::string& index_dtype, const Inputs& inputs,
                                             const Team& team, const Placement& placement);

// The factory of a family, or an InputError that names the families there are.
Factory find_family(const std::string& family);

class FamilyRegistrar {
 public:
  FamilyRegistrar(const char* family, Factory factory);
};

}  // namespace memkern
