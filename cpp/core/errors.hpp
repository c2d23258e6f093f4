// Errors of a request: wrong input, not enough memory, or a failed device.
#pragma once

#include <stdexcept>
#include <string>

namespace memkern {

// Becomes Python's ValueError; the message is one sentence that names the culprit.
class InputError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Becomes Python's MemoryError; thrown before any memory is touched.
class MemoryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Becomes memkern.DeviceError in Python: an operation of a device failed.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace memkern
