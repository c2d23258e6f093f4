// Prepares messages between ranks: slots, places and a count for each rank, and pairs of ranks.
#include <algorithm>
#include <string>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "engine/problem.hpp"
#include "families/messages/patterns.hpp"

namespace memkern {
namespace {

constexpr std::int64_t kWord_B = 8;
// A library counts bytes of a message by an int.
constexpr std::int64_t kMost_B = std::int64_t{1} << 30;

class MessagesProblem : public Problem {
 public:
  MessagesProblem(const std::string& kernel, const Inputs& inputs, const Team& team,
                  const Placement& placement)
      : Problem(declaration_of(kernel), team, placement) {
    const std::int64_t ranks = inputs.integer("workers");
    if (ranks != workers()) {
      throw InputError("the case was made for " + std::to_string(ranks) +
                       " ranks but would run with " + std::to_string(workers()) +
                       ": make it with the ranks that it will run with");
    }
    args_.size_B = inputs.integer("size_B");
    args_.window = inputs.integer("window");
    args_.ranks = ranks;
    if (args_.size_B % kWord_B != 0) {
      throw InputError("size_B must be a multiple of " + std::to_string(kWord_B) + ", not " +
                       std::to_string(args_.size_B));
    }
    set_pairs(inputs.copy("pairs"));
    count_ = checked_mul(pairs_, args_.window, "pairs times window");
    const std::int64_t words = args_.size_B / kWord_B * ranks;
    const std::int64_t places = checked_mul(words, args_.window, "ranks times window times size_B");
    const char* slots = kernel == "messages.fetch_add" ? "old" : "source";
    add_array(slots, DType::U64, checked_add(places, words, "the slots"), false);
    add_array("target", DType::U64, places, false);
    add_array("sent", DType::U64, 1, true);
    commit();
    args_.slots = array(slots).data;
    args_.places = array("target").data;
    args_.sent = reinterpret_cast<std::uint64_t*>(array("sent").data);
    args_.ends = ends_.data();
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }

 private:
  // Origin and target of one pair after the other.
  void set_pairs(const std::vector<std::int64_t>& ranks) {
    if (ranks.size() % 2 != 0) throw InputError("pairs must name an origin and a target each");
    ends_.resize(static_cast<std::size_t>(args_.ranks));
    const auto end_of = [&](std::int64_t rank) -> MessageEnd& {
      if (rank < 0 || rank >= args_.ranks) {
        throw InputError("pairs name rank " + std::to_string(rank) + ", but there are " +
                         std::to_string(args_.ranks) + " ranks");
      }
      MessageEnd& end = ends_[static_cast<std::size_t>(rank)];
      if (end.peer >= 0) {
        throw InputError("rank " + std::to_string(rank) + " is in two pairs: a rank has one peer");
      }
      return end;
    };
    for (std::size_t k = 0; k < ranks.size(); k += 2, ++pairs_) {
      const auto pair = static_cast<int>(pairs_);
      end_of(ranks[k]) = {static_cast<int>(ranks[k + 1]), pair, true};
      if (ranks[k + 1] != ranks[k]) {
        end_of(ranks[k + 1]) = {static_cast<int>(ranks[k]), pair, false};
      }
    }
  }

  MessageArgs args_;
  std::vector<MessageEnd> ends_;
  std::int64_t pairs_ = 0;
  std::int64_t count_ = 0;
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string&, const std::string&,
                              const Inputs& inputs, const Team& team, const Placement& placement) {
  return std::make_unique<MessagesProblem>(kernel, inputs, team, placement);
}

constexpr const char* kCopied = "source:r[slots, words] target:w[places, words] sent:u[ranks]";
constexpr DeclaredInteger kIntegers[] = {
    {"workers", 1}, {"size_B", kWord_B, kMost_B}, {"window", 1}};
constexpr DeclaredInteger kOfWords[] = {
    {"workers", 1}, {"size_B", kWord_B, kWord_B}, {"window", 1}};
constexpr Declaration kDeclared[] = {
    {"messages.put", kCopied, 0, "", 0, kIntegers},
    {"messages.get", kCopied, 0, "", 0, kIntegers},
    {"messages.fetch_add", "old:w[slots] target:u[places] sent:u[ranks]", 0, "", 1, kOfWords},
    {"messages.send", kCopied, 0, "", 0, kIntegers},
};
const FamilyRegistrar messages("messages", make, kDeclared);

}  // namespace
}  // namespace memkern
