// What several tests need: memory that ends at an inaccessible page, and refusals with a message.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/errors.hpp"

namespace memkern::testing {

// An array whose last element is followed by a page that faults when it is touched.
template <class T>
class Fenced {
 public:
  explicit Fenced(const std::vector<T>& values)
      : size_(static_cast<std::int64_t>(values.size())),
        buffer_(size_ * static_cast<std::int64_t>(sizeof(T)), Placement{}) {
    data_ = reinterpret_cast<T*>(buffer_.data() + buffer_.capacity()) - size_;
    for (std::size_t i = 0; i < values.size(); ++i) data_[i] = values[i];
  }

  T* data() { return data_; }
  std::vector<T> values() const { return {data_, data_ + size_}; }

 private:
  std::int64_t size_;
  Buffer buffer_;
  T* data_;
};

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

}  // namespace memkern::testing
