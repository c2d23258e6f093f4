// Packed exchange among MPI's processes: persistent messages between neighbours, or a neighbourhood
// collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/mpi/library.hpp"
#include "backends/mpi/plan.hpp"
#include "engine/exchange.hpp"

namespace memkern::mpi {

// Messages are received in the array itself if their elements are stored there one after the other.
class PackedExchange : public Exchange {
 public:
  // Called by all ranks together. Throws InputError on all of them if the plan of one is wrong or
  // does not match another plan.
  explicit PackedExchange(const Plan& plan);
  ~PackedExchange() override;
  PackedExchange(const PackedExchange&) = delete;
  PackedExchange& operator=(const PackedExchange&) = delete;

  // Of float64, float32, and if elements are not added, of int64, uint64, int32 and uint32.
  void bind(const char* dtype, const std::byte* from, std::int64_t from_elements, std::byte* to,
            std::int64_t to_elements) override;
  bool adds() const override { return adds_; }
  std::int64_t packed() const override { return std::ssize(sent_); }
  std::int64_t unpacked() const override { return in_place_ ? 0 : std::ssize(targets_); }
  void pack(Range range) override;
  void start() override;
  void finish() override;
  void unpack(Range range) override;

 private:
  struct Message {
    int rank;
    std::int64_t first;  // of its elements among all that are sent or received
    std::int64_t count;
  };

  // Adds a plan's messages and positions; returns the error of the plan in one sentence, or an
  // empty string.
  std::string add(const Plan& plan);
  void make_graph();
  void add_targets(const Plan& plan);
  void release();
  [[noreturn]] void give_up();

  bool adds_;
  double timeout_s_;
  bool collective_;
  bool in_place_ = false;
  std::vector<Message> sends_;
  std::vector<Message> receives_;
  std::vector<std::int64_t> sent_;
  std::int64_t received_ = 0;
  // Target t gets the received elements of_[starts_[t]] to of_[starts_[t + 1] - 1].
  std::vector<std::int64_t> targets_;
  std::vector<std::int64_t> starts_;
  std::vector<std::int64_t> of_;

  bool floating_ = false;
  std::int64_t element_B_ = 0;
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  std::vector<std::uint64_t> out_;
  std::vector<std::uint64_t> in_;
  std::vector<MPI_Request> requests_;

  MPI_Datatype word_ = MPI_DATATYPE_NULL;
  std::byte* received_at_ = nullptr;

  // Messages in the form of the collective.
  struct Blocks {
    Blocks() = default;
    explicit Blocks(const std::vector<Message>& messages);
    std::vector<int> ranks;
    std::vector<int> counts;
    std::vector<int> first;
  };
  Blocks sent_to_;
  Blocks from_each_;
  MPI_Comm graph_ = MPI_COMM_NULL;
};

}  // namespace memkern::mpi
