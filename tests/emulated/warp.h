// The threads of a warp in lock step: each has its own stack, and a thread that calls a function of
// all lanes waits until every lane that has not ended has called one.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

namespace emulated {

constexpr int kLanes = 32;

class Warp {
 public:
  // A lane's call of a function of all lanes of a mask, with a word for the others.
  struct Call {
    const char* function;
    unsigned mask;
    std::uint64_t word;
  };
  // The calls of the lanes of `mask`.
  struct Exchange {
    unsigned mask = 0;
    std::array<Call, kLanes> calls{};
  };

  // Runs work(lane) for the first `lanes` lanes, each from one call of exchange() to the next, in
  // the given order.
  static void run(int lanes, const std::vector<int>& order, const std::function<void(int)>& work) {
    Warp& warp = instance();
    warp.work_ = &work;
    warp.running_ = true;
    for (int lane = 0; lane < lanes; ++lane) warp.prepare(lane);
    unsigned left = lanes == kLanes ? ~0U : (1U << lanes) - 1;
    while (left != 0) {
      Exchange next;
      for (const int lane : order) {
        if (lane >= lanes || (left >> lane & 1U) == 0) continue;
        warp.lane_ = lane;
        swapcontext(&warp.main_, &warp.contexts_[static_cast<std::size_t>(lane)]);
        if (warp.ended_) {
          left &= ~(1U << lane);
        } else {
          next.mask |= 1U << lane;
          next.calls[static_cast<std::size_t>(lane)] = warp.call_;
        }
      }
      warp.exchanged_ = next;
    }
    warp.running_ = false;
  }

  // Returns the calls of all lanes that have not ended.
  static Exchange exchange(const Call& call) {
    Warp& warp = instance();
    if (!warp.running_) fail("a kernel that uses other lanes must declare Warps");
    const int lane = warp.lane_;
    warp.call_ = call;
    warp.ended_ = false;
    swapcontext(&warp.contexts_[static_cast<std::size_t>(lane)], &warp.main_);
    return warp.exchanged_;
  }
  static int lane() { return instance().lane_; }

  // Ends the program where the behaviour of a device is undefined.
  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "emulated device: %s\n", why);
    std::abort();
  }

 private:
  static constexpr std::size_t kStack_B = std::size_t{1} << 16;

  Warp() {
    for (auto& stack : stacks_) stack = std::make_unique<std::byte[]>(kStack_B);
  }
  static Warp& instance() {
    static auto* warp = new Warp;
    return *warp;
  }

  void prepare(int lane) {
    const auto k = static_cast<std::size_t>(lane);
    getcontext(&contexts_[k]);
    contexts_[k].uc_stack.ss_sp = stacks_[k].get();
    contexts_[k].uc_stack.ss_size = kStack_B;
    contexts_[k].uc_link = &main_;
    makecontext(&contexts_[k], &Warp::begin, 0);
  }
  static void begin() {
    Warp& warp = instance();
    (*warp.work_)(warp.lane_);
    warp.ended_ = true;
  }

  std::array<std::unique_ptr<std::byte[]>, kLanes> stacks_;
  std::array<ucontext_t, kLanes> contexts_{};
  ucontext_t main_{};
  const std::function<void(int)>* work_ = nullptr;
  Exchange exchanged_;
  Call call_{};
  int lane_ = 0;
  bool ended_ = false;
  bool running_ = false;
};

// The lanes that call a function at the same time.
inline unsigned calling(const char* function) {
  const Warp::Exchange all = Warp::exchange({function, 0, 0});
  unsigned found = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Warp::Call& call = all.calls[static_cast<std::size_t>(lane)];
    if ((all.mask >> lane & 1U) != 0 && call.function == function) found |= 1U << lane;
  }
  return found;
}

// The words of the lanes of `mask`, all of which must call the same function for the same mask.
inline std::array<std::uint64_t, kLanes> exchange_in(unsigned mask, const char* function,
                                                     std::uint64_t word) {
  const Warp::Exchange all = Warp::exchange({function, mask, word});
  if ((mask >> Warp::lane() & 1U) == 0) Warp::fail("a lane is not in its own mask");
  if ((mask & ~all.mask) != 0) Warp::fail("a lane of the mask has ended");
  std::array<std::uint64_t, kLanes> words{};
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1U) == 0) continue;
    const Warp::Call& call = all.calls[static_cast<std::size_t>(lane)];
    if (call.function != function) Warp::fail("lanes of a mask call different functions");
    if (call.mask != mask) Warp::fail("lanes of a mask have different masks");
    words[static_cast<std::size_t>(lane)] = call.word;
  }
  return words;
}

}  // namespace emulated
