// The request of a case, with the names that Python uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/device.hpp"
#include "engine/exchange.hpp"
#include "engine/problem.hpp"

namespace memkern {

struct Request {
  std::string kernel;
  std::string dtype = "float64";
  std::string index_dtype;
  std::string template_variant;
  Inputs inputs;
  int threads = 0;  // 0: as many as there are processing units
  std::string pin = "auto";
  std::string pages = "default";
  std::string numa = "first-touch";
  std::int64_t offset_B = 0;
  std::string schedule = "static";
  std::int64_t chunk = 0;
  std::string repetition = "fork";
  int unroll = 0;
  bool flush = false;
  // Capacity of all last-level caches for this process; 0: as reported by the system.
  std::int64_t caches_B = 0;
  std::int64_t seed = 0;
  Device* device = nullptr;
  Timer timer = Timer::Host;
  int block_threads = 0;
  int block_shared_B = 0;  // further shared memory of each block
  // The exchange among ranks in every invocation, if any, and its array.
  std::shared_ptr<Exchange> exchange;
  std::string exchanged;
};

// Parses host, events or graph.
Timer parse_timer(const std::string& text);

}  // namespace memkern
