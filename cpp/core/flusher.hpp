#pragma once

#include "core/buffer.hpp"
#include "core/team.hpp"

namespace memkern {

// Flushes the caches by writing to a buffer that is larger than all of them. The contents of the
// buffer are unknown afterwards.
class CacheFlusher {
 public:
  CacheFlusher(const Team& team, Buffer& buffer) : team_(team), buffer_(buffer) {}
  void flush();

 private:
  const Team& team_;
  Buffer& buffer_;
  unsigned char round_ = 0;
};

}  // namespace memkern
