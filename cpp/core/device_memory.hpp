// Memory of an accelerator that the processor cannot access directly. C++17, as CUDA sources
// include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace memkern {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual const std::string& name() const = 0;  // of the device, such as "cuda:0"
  virtual std::int64_t free_B() const = 0;

  // Uninitialised memory; throws MemoryError.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void release(std::byte* data) noexcept = 0;
  virtual void write(std::byte* to, const void* from, std::int64_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, std::int64_t bytes) const = 0;
  // Sets each element to the value of its position (see Array).
  virtual void fill(const char* dtype, std::byte* data, std::int64_t rows, std::int64_t columns,
                    std::uint32_t salt) = 0;
};

}  // namespace memkern
