// The workers of a measurement: how many, and where each one runs.
#pragma once

#include <sched.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace memkern {

struct TeamRequest {
  int threads = 0;           // 0: as many as there are processing units
  std::string pin = "none";  // auto | none | compact | spread | a list such as 0,2,4-7
};

class UnitReservation;

class Team {
 public:
  explicit Team(const TeamRequest& request);

  int size() const { return size_; }
  const std::string& pin_asked() const { return pin_asked_; }
  // Units the workers are bound to as read back from the system, "none" where they float.
  const std::string& pin_obtained() const { return pin_obtained_; }
  // Distinguishes teams whose memory must not be shared: their workers touch it on other nodes.
  const std::string& memory_key() const { return memory_key_; }

  // Binds the workers while it lives, and gives the calling thread its own binding back.
  class Session {
   public:
    explicit Session(const Team& team);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    // Room for every processor that a kernel can have.
    using Mask = std::array<cpu_set_t, 8>;
    Mask own_;
    bool rebound_ = false;
  };

 private:
  int size_ = 1;
  std::string pin_asked_;
  std::vector<int> units_;  // empty: not pinned
  std::vector<std::shared_ptr<UnitReservation>> reservations_;
  std::string pin_obtained_ = "none";
  std::string binding_key_;
  std::string memory_key_;
};

}  // namespace memkern
