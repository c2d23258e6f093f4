// Interface of the exchange among ranks in every invocation of a case, implemented by a backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/body.hpp"

namespace memkern {

// An exchange is pack() for all elements in [0, packed()), start(), finish(), and unpack() for all
// in [0, unpacked()). Workers divide the elements of pack() and of unpack() among themselves; one
// of them calls start() and finish(), between which other work can be done.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // The arrays, which may be the same, from which elements are sent and in which they are received.
  // They must live as long as the exchange is used. Throws InputError if a position is outside.
  virtual void bind(const char* dtype, const std::byte* from, std::int64_t from_elements,
                    std::byte* to, std::int64_t to_elements) = 0;
  // Whether received elements are added to the array's elements; otherwise they replace them.
  virtual bool adds() const = 0;
  virtual std::int64_t packed() const = 0;
  virtual std::int64_t unpacked() const = 0;
  virtual void pack(Range range) = 0;
  virtual void start() = 0;
  virtual void finish() = 0;
  virtual void unpack(Range range) = 0;
};

}  // namespace memkern
