// The request of a case from keyword arguments of Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "engine/request.hpp"
#include "python/exchange.hpp"

namespace memkern {

using IndexArray = pybind11::array_t<std::int64_t, pybind11::array::c_style>;

inline bool is_contiguous(const pybind11::array& array) {
  return (array.flags() & pybind11::array::c_style) != 0;
}

// A request parsed from keyword arguments. It holds their arrays, because the request has views of
// them.
struct Parsed : Request {
  explicit Parsed(const pybind11::dict& d) {
    std::set<std::string> known;
    const auto parse = [&]<class T>(const char* name, T& to) {
      if (!d.contains(name)) throw InputError(std::string("the argument ") + name + " is missing");
      try {
        to = d[name].cast<T>();
      } catch (const pybind11::cast_error&) {
        throw InputError(std::string("the argument ") + name + " has the wrong type");
      }
      known.insert(name);
    };
    parse("kernel", kernel);
    parse("dtype", dtype);
    parse("index_dtype", index_dtype);
    parse("template_variant", template_variant);
    parse("integers", inputs.integers);
    parse("numbers", inputs.numbers);
    std::map<std::string, pybind11::array> arrays;
    parse("indices", arrays);
    for (const auto& [name, array] : arrays) add_indices(name, array);
    parse("data", arrays);
    for (const auto& [name, array] : arrays) add_data(name, array);
    parse("threads", threads);
    parse("pin", pin);
    parse("pages", pages);
    parse("numa", numa);
    parse("offset", offset_B);
    parse("schedule", schedule);
    parse("chunk", chunk);
    parse("repetition", repetition);
    parse("unroll", unroll);
    parse("flush", flush);
    parse("caches_B", caches_B);
    parse("seed", seed);
    parse("block_threads", block_threads);
    parse("block_shared", block_shared_B);
    std::string timer_name;
    parse("timer", timer_name);
    timer = parse_timer(timer_name);
    pybind11::object capsule;
    parse("device", capsule);
    if (!capsule.is_none()) device = device_of(capsule);
    if (d.contains("exchange")) {
      std::pair<pybind11::object, std::string> given;
      parse("exchange", given);
      exchange = exchange_of(given.first);
      exchanged = given.second;
    }
    for (const auto& [key, value] : d) {
      const auto name = key.cast<std::string>();
      if (known.count(name) == 0) throw InputError("the argument " + name + " is unknown");
    }
  }

 private:
  static Device* device_of(const pybind11::object& object) {
    constexpr const char* kName = "memkern.Device";
    if (PyCapsule_IsValid(object.ptr(), kName) == 0) {
      throw InputError("the argument device has the wrong type");
    }
    return static_cast<Device*>(PyCapsule_GetPointer(object.ptr(), kName));
  }

  // int32 arrays are used as they are, all others are converted to int64.
  void add_indices(const std::string& name, const pybind11::array& array) {
    if (array.ndim() != 1) throw InputError(name + " must have one dimension");
    const bool narrow =
        array.dtype().is(pybind11::dtype::of<std::int32_t>()) && is_contiguous(array);
    if (narrow) {
      held_.push_back(array);
    } else {
      try {
        held_.push_back(array.cast<IndexArray>());
      } catch (const pybind11::cast_error&) {
        throw InputError(name + " must hold whole numbers");
      }
    }
    inputs.indices[name] = {held_.back().data(), array.size(), narrow};
  }

  void add_data(const std::string& name, const pybind11::array& array) {
    if (array.ndim() != 1 || !is_contiguous(array)) {
      throw InputError(name + " must be contiguous and have one dimension");
    }
    held_.push_back(array);
    const DType type = parse_dtype(pybind11::str(array.dtype()).cast<std::string>());
    inputs.data[name] = {array.data(), array.size(), type};
  }

  std::vector<pybind11::array> held_;
};

}  // namespace memkern
