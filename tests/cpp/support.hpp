// What several tests need: memory that ends at an inaccessible page, the compiled bodies that this
// machine runs, and refusals with a message.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/errors.hpp"
#include "engine/registry.hpp"

namespace memkern {

// How a test names the entry that it is tried on.
inline void PrintTo(const RegisteredEntry& e, std::ostream* out) {
  *out << e.kernel << ' ' << e.variant << ' ' << e.isa << ' ' << e.dtype << ' ' << e.index
       << " unroll " << e.unroll << ' ' << e.form;
}

namespace testing {

// An array whose last element is followed by a page that faults when it is touched.
template <class T>
class Fenced {
 public:
  explicit Fenced(const std::vector<T>& values)
      : size_(static_cast<std::int64_t>(values.size())),
        buffer_(take(size_ * static_cast<std::int64_t>(sizeof(T)))) {
    data_ = reinterpret_cast<T*>(buffer_->data() + buffer_->capacity()) - size_;
    std::copy(values.begin(), values.end(), data_);
  }
  ~Fenced() { spare().push_back(std::move(buffer_)); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  T* data() { return data_; }
  std::vector<T> values() const { return {data_, data_ + size_}; }

 private:
  // Mappings are used again: tests make some hundred thousand of these.
  static std::vector<std::unique_ptr<Buffer>>& spare() {
    static std::vector<std::unique_ptr<Buffer>> buffers;
    return buffers;
  }
  static std::unique_ptr<Buffer> take(std::int64_t bytes) {
    constexpr std::int64_t kLeast_B = 1 << 16;
    auto& all = spare();
    const auto fits = [&](const auto& buffer) { return buffer->capacity() >= bytes; };
    const auto found = std::find_if(all.rbegin(), all.rend(), fits);
    if (found == all.rend()) {
      return std::make_unique<Buffer>(std::max(bytes, kLeast_B), Placement{});
    }
    std::swap(*found, all.back());
    auto buffer = std::move(all.back());
    all.pop_back();
    return buffer;
  }

  std::int64_t size_;
  std::unique_ptr<Buffer> buffer_;
  T* data_;
};

// Whole numbers from 0 below `bound` that follow no pattern that a vector's width could hide.
inline std::int64_t scattered(std::int64_t i, std::int64_t salt, std::int64_t bound) {
  std::uint64_t x = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 29)) + static_cast<std::uint64_t>(salt) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 32)) * 0x94D049BB133111EBU;
  return static_cast<std::int64_t>((x >> 33) % static_cast<std::uint64_t>(bound));
}

template <class T>
std::vector<T> scattered_values(std::int64_t size, std::int64_t salt, std::int64_t bound) {
  std::vector<T> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(static_cast<T>(scattered(i, salt, bound)));
  return all;
}

// The entries that this machine runs, of the kernels that `wanted` picks by name.
template <class Wanted>
std::vector<RegisteredEntry> entries_of(const Wanted& wanted) {
  const std::vector<std::string> isas = supported_isas();
  std::vector<RegisteredEntry> all;
  for (const RegisteredEntry& e : registered_entries()) {
    const bool runs = std::find(isas.begin(), isas.end(), e.isa) != isas.end();
    if (runs && wanted(std::string(e.kernel))) all.push_back(e);
  }
  return all;
}

inline std::string name_of(const ::testing::TestParamInfo<RegisteredEntry>& tried) {
  const RegisteredEntry& e = tried.param;
  std::string name = std::string(e.kernel) + "_" + e.variant + "_" + e.isa + "_" + e.dtype;
  if (*e.index != '\0') name += std::string("_") + e.index;
  if (e.unroll != 0) name += "_by" + std::to_string(e.unroll);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

// Calls fn<T, I>() with the types of an entry's values and indices.
template <class Fn>
void with_types(const RegisteredEntry& e, const Fn& fn) {
  const bool wide = std::string(e.dtype) == "float64";
  const bool narrow_index = std::string(e.index) == "int32";
  if (wide && narrow_index) fn.template operator()<double, std::int32_t>();
  if (wide && !narrow_index) fn.template operator()<double, std::int64_t>();
  if (!wide && narrow_index) fn.template operator()<float, std::int32_t>();
  if (!wide && !narrow_index) fn.template operator()<float, std::int64_t>();
}

// The message with which `action` is refused; fails the test where it is not.
template <class Error, class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

inline ::testing::AssertionResult says(const std::string& message, const std::string& words) {
  if (message.find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << message << "' lacks '" << words << "'";
}

}  // namespace testing
}  // namespace memkern
