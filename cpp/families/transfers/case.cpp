// Prepares transfers: a source and a target for each direction, in the memories between which data
// move.
#include <climits>
#include <cstdint>
#include <string>

#include "core/device_memory.hpp"
#include "core/errors.hpp"
#include "engine/problem.hpp"
#include "families/transfers/args.hpp"

namespace memkern {
namespace {

constexpr std::int64_t kWord_B = sizeof(std::uint64_t);
constexpr std::int64_t kPageWords = TransfersArgs::kPage_B / kWord_B;
constexpr const char* kMemories[] = {"pageable", "pinned", "managed"};
constexpr std::int64_t kManaged = 2;

class TransfersProblem : public Problem {
 public:
  TransfersProblem(const std::string& kernel, const Inputs& inputs, const Team& team,
                   const Placement& placement)
      : Problem(declaration_of(kernel), team, placement) {
    if (device() == nullptr) {
      throw InputError("kernel '" + kernel + "' moves data from or to a GPU: give device cuda");
    }
    words_ = inputs.integer("words");
    pages_ = (words_ + kPageWords - 1) / kPageWords;
    args_.bytes = words_ * kWord_B;
    if (kernel == "transfers.between") {
      args_.peer = static_cast<int>(inputs.integer("peer"));
      add_array("source", DType::U64, words_, false);
      add_array_in(device()->other("cuda:" + std::to_string(args_.peer)), "target", DType::U64,
                   words_);
    } else {
      const std::int64_t memory = inputs.integer("memory");
      memory_ = kMemories[memory];
      if (kernel != "transfers.from_device") add_to_device(memory == kManaged);
      if (kernel == "transfers.both") add_from_device(memory == kManaged, "back_");
      if (kernel == "transfers.from_device") add_from_device(memory == kManaged, "");
    }
    commit();
    const auto ends = [&](const std::string& prefix) {
      return Transfer{array(prefix + "source").data, array(prefix + "target").data};
    };
    if (kernel == "transfers.from_device") {
      args_.from_device = ends("");
    } else {
      args_.to_device = ends("");
      if (kernel == "transfers.both") args_.from_device = ends("back_");
    }
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return 1; }
  bool runs(const RegisteredEntry& entry) const override {
    return memory_ == entry.template_variant;
  }

 private:
  void add_to_device(bool managed) {
    add_array_in(device()->other(memory_), "source", DType::U64, words_);
    add_array("target", DType::U64, managed ? pages_ : words_, false);
  }
  void add_from_device(bool managed, const std::string& prefix) {
    DeviceMemory& host = device()->other(managed ? "pageable" : memory_);
    if (managed) {
      add_array_in(device()->other(memory_), prefix + "source", DType::U64, words_);
    } else {
      add_array(prefix + "source", DType::U64, words_, false);
    }
    add_array_in(host, prefix + "target", DType::U64, managed ? pages_ : words_);
  }

  TransfersArgs args_;
  std::int64_t words_ = 0;
  std::int64_t pages_ = 0;
  std::string memory_ = "device";
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& dtype,
                              const std::string&, const Inputs& inputs, const Team& team,
                              const Placement& placement) {
  if (dtype != "uint64") throw InputError("kernel '" + kernel + "' has uint64 words");
  return std::make_unique<TransfersProblem>(kernel, inputs, team, placement);
}

constexpr const char* kOneWay = "source:r[words] target:w[words, or pages of managed memory]";
constexpr DeclaredInteger kWords = {"words", 1, INT64_MAX / kWord_B};
constexpr DeclaredInteger kIntegers[] = {kWords, {"memory", 0, kManaged}};
constexpr DeclaredInteger kBetween[] = {kWords, {"peer", 0, INT_MAX}};
constexpr Declaration kDeclared[] = {
    {"transfers.to_device", kOneWay, 0, "", 0, kIntegers},
    {"transfers.from_device", kOneWay, 0, "", 0, kIntegers},
    {"transfers.both",
     "source:r[words] target:w[words, or pages of managed memory] "
     "back_source:r[words] back_target:w[words, or pages of managed memory]",
     0, "", 0, kIntegers},
    {"transfers.between", "source:r[words] target:w[words]", 0, "", 0, kBetween},
};
const FamilyRegistrar transfers("transfers", make, kDeclared);

}  // namespace
}  // namespace memkern
