// Memory of an accelerator that the processor cannot access directly. C++17, as CUDA sources
// include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/body.hpp"
#include "core/errors.hpp"

namespace memkern {

// Value with which an element of an array is filled, by its position: a whole number below 2^23.
MEMKERN_ANYWHERE std::uint32_t fill_value(std::uint32_t position, std::uint32_t salt) {
  return (position * 2654435761U + salt) >> 9;
}

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual const std::string& name() const = 0;  // of the device, such as "cuda:0"
  virtual std::int64_t free_B() const = 0;

  // Uninitialised memory; throws MemoryError.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void release(std::byte* data) noexcept = 0;
  // Whether a released buffer may be used again for any request that it is large enough for.
  virtual bool reusable() const { return true; }
  virtual void write(std::byte* to, const void* from, std::int64_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, std::int64_t bytes) const = 0;
  // Sets each element to the value of its position.
  virtual void fill(const char* dtype, std::byte* data, std::int64_t rows, std::int64_t columns,
                    std::uint32_t salt) = 0;
  // Memory that this device copies from and to: "pageable", "pinned" or "managed" memory of the
  // host, or the memory of another device by its name. Throws InputError if there is none.
  virtual DeviceMemory& other(const std::string& memory) {
    throw InputError(name() + " copies nothing from or to " + memory + " memory");
  }
};

}  // namespace memkern
