#include "engine/inputs.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/errors.hpp"

namespace memkern {
namespace {

constexpr std::array<std::pair<const char*, DType>, 6> kTypes{{{"float32", DType::F32},
                                                               {"float64", DType::F64},
                                                               {"int32", DType::I32},
                                                               {"int64", DType::I64},
                                                               {"uint32", DType::U32},
                                                               {"uint64", DType::U64}}};

}  // namespace

DType parse_dtype(const std::string& text) {
  std::string known;
  for (const auto& [name, type] : kTypes) {
    if (text == name) return type;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw InputError("dtype '" + text + "' is not one of " + known);
}

DType parse_value_dtype(const std::string& text) {
  const DType type = parse_dtype(text);
  if (type == DType::F32 || type == DType::F64) return type;
  throw InputError("dtype '" + text + "' is not float32 or float64");
}

DType parse_index_dtype(const std::string& text) {
  if (text == "int32") return DType::I32;
  if (text == "int64") return DType::I64;
  throw InputError("index_dtype '" + text + "' is not int32 or int64");
}

const char* dtype_name(DType type) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](auto& t) { return t.second == type; })
      ->first;
}

std::int64_t dtype_size(DType type) {
  return with_type(type, []<class T>(T) { return static_cast<std::int64_t>(sizeof(T)); });
}

std::int64_t Inputs::integer(const std::string& name) const {
  const auto found = integers.find(name);
  if (found == integers.end()) throw InputError("the input '" + name + "' is missing");
  return found->second;
}

std::int64_t Inputs::option(const std::string& name, std::int64_t most) const {
  if (!integers.contains(name)) return 0;
  check({name.c_str(), 0, most});
  return integer(name);
}

void Inputs::check(const DeclaredInteger& declared) const {
  const std::int64_t value = integer(declared.name);
  if (value >= declared.least && value <= declared.most) return;
  throw InputError(std::string(declared.name) + " must be at " +
                   (value < declared.least ? "least " + std::to_string(declared.least)
                                           : "most " + std::to_string(declared.most)) +
                   ", not " + std::to_string(value));
}

std::optional<std::int64_t> Inputs::split(std::int64_t iterations) const {
  if (!integers.contains("split_at")) return std::nullopt;
  const std::int64_t at = option("split_at");
  if (at > iterations) {
    throw InputError("split_at must be at most the " + std::to_string(iterations) +
                     " iterations, not " + std::to_string(at));
  }
  return at;
}

const IndexView& Inputs::index(const std::string& name) const {
  const auto found = indices.find(name);
  if (found == indices.end()) throw InputError("the input '" + name + "' is missing");
  if (found->second.size < 1) throw InputError(name + " must not be empty");
  return found->second;
}

const IndexView& Inputs::index(const std::string& name, std::int64_t length) const {
  const IndexView& view = index(name);
  if (view.size != length) {
    throw InputError(name + " must have " + std::to_string(length) + " entries, not " +
                     std::to_string(view.size));
  }
  return view;
}

std::vector<std::int64_t> Inputs::copy(const std::string& name) const {
  const IndexView& view = index(name);
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(view.size));
  for (std::int64_t i = 0; i < view.size; ++i) all.push_back(view[i]);
  return all;
}

}  // namespace memkern
