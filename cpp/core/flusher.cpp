#include "core/flusher.hpp"

#include <cstddef>
#include <cstdint>

#include "core/body.hpp"
#include "core/parts.hpp"

namespace memkern {

void CacheFlusher::flush() {
  ++round_;
  buffer_.content.clear();
  parallel_parts(team_, 1, buffer_.capacity(), [this](Range part, int) {
    constexpr std::int64_t kStep = 64;  // no cache line is shorter
    std::byte* data = buffer_.data();
    for (std::int64_t at = part.begin; at < part.end; at += kStep) {
      data[at] = static_cast<std::byte>(round_);
    }
    do_not_optimize(data);
  });
}

}  // namespace memkern
