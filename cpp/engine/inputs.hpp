// The inputs of a case, and the types of its values and indices.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/registry.hpp"

namespace memkern {

enum class DType { F32, F64, I32, I64, U32, U64 };
DType parse_dtype(const std::string& text);
const char* dtype_name(DType type);
std::int64_t dtype_size(DType type);
// The type of a kernel's values: float32 or float64.
DType parse_value_dtype(const std::string& text);
// The type of its indices: int32 or int64.
DType parse_index_dtype(const std::string& text);

// Calls f with a value of the type.
template <class F>
auto with_type(DType type, const F& f) {
  switch (type) {
    case DType::F32: return f(float{});
    case DType::F64: return f(double{});
    case DType::I32: return f(std::int32_t{});
    case DType::U32: return f(std::uint32_t{});
    case DType::U64: return f(std::uint64_t{});
    case DType::I64: break;
  }
  return f(std::int64_t{});
}

// Non-owning view of the caller's indices. They are copied, and checked on the copy, before use.
struct IndexView {
  const void* data = nullptr;
  std::int64_t size = 0;
  bool narrow = false;  // 32 bits each, not 64
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

// The inputs of a case, by name.
class Inputs {
 public:
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> numbers;
  std::map<std::string, IndexView> indices;
  std::map<std::string, DataView> data;

  // Throws InputError unless the integer is given and in its range.
  void check(const DeclaredInteger& declared) const;
  // These throw InputError if there is no such input, or it does not have the required length. Of
  // the integers that the kernel declares, make_problem() has checked the ranges.
  std::int64_t integer(const std::string& name) const;
  const IndexView& index(const std::string& name) const;
  const IndexView& index(const std::string& name, std::int64_t length) const;
  std::vector<std::int64_t> copy(const std::string& name) const;
  // The integer of an option, 0 if it is not given. Throws InputError unless it is from 0 to
  // `most`.
  std::int64_t option(const std::string& name, std::int64_t most = INT64_MAX) const;
  // The integer "split_at", if it is given: the iteration at which an invocation is divided in two
  // parts. Throws InputError if it is outside [0, iterations].
  std::optional<std::int64_t> split(std::int64_t iterations) const;
};

}  // namespace memkern
