// The workers of a measurement: their number and binding.
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

// 8192 processors, the most that Linux supports.
using Mask = std::array<cpu_set_t, 8>;

class Team {
 public:
  explicit Team(const TeamRequest& request);

  int size() const { return size_; }
  // Units that the workers are bound to, as read back from the system; "none" if not bound.
  const std::string& pin_obtained() const { return pin_obtained_; }
  // Why the system refused pin 'auto', which then is 'none'; empty if it did not.
  const std::string& pin_refused() const { return pin_refused_; }
  bool bound() const { return !units_.empty(); }
  // Units that were needed although another memkern process reserved them.
  const std::vector<int>& shared_units() const { return shared_units_; }
  // Teams with equal keys can reuse each other's memory: their workers touch it on the same nodes.
  const std::string& memory_key() const { return memory_key_; }

  // Binds the workers during its lifetime, then restores the binding of the calling thread, except
  // to units that others have taken from it meanwhile.
  class Session {
   public:
    explicit Session(const Team& team);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    Mask own_;
    Mask target_;
    bool rebound_ = false;
  };

 private:
  int size_ = 1;
  std::vector<int> units_;       // empty: not pinned
  std::vector<int> processors_;  // on which the workers of these units run
  std::vector<int> shared_units_;
  std::vector<std::shared_ptr<UnitReservation>> reservations_;
  std::string pin_obtained_ = "none";
  std::string pin_refused_;
  std::string binding_key_;
  std::string memory_key_;
};

}  // namespace memkern
