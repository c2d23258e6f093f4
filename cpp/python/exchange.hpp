// The form in which a backend's module passes an exchange to _memkern.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "core/errors.hpp"
#include "engine/exchange.hpp"

namespace memkern {

inline constexpr const char* kExchangeCapsule = "memkern.Exchange";

inline pybind11::capsule capsule_of(std::shared_ptr<Exchange> exchange) {
  using Shared = std::shared_ptr<Exchange>;
  return pybind11::capsule(new Shared(std::move(exchange)), kExchangeCapsule, [](PyObject* object) {
    delete static_cast<Shared*>(PyCapsule_GetPointer(object, kExchangeCapsule));
  });
}

inline std::shared_ptr<Exchange> exchange_of(const pybind11::object& object) {
  if (PyCapsule_IsValid(object.ptr(), kExchangeCapsule) == 0) {
    throw InputError("the argument exchange has the wrong type");
  }
  return *static_cast<std::shared_ptr<Exchange>*>(
      PyCapsule_GetPointer(object.ptr(), kExchangeCapsule));
}

}  // namespace memkern
