// Streaming cases: their preparation, and runs by several workers through the sampler, in which the
// thread sanitizer detects races: no two workers access the same element.
#include "families/streaming/args.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

constexpr std::int64_t kElements = 60;
constexpr std::int64_t kGlobal = 20;   // global nodes
constexpr std::int64_t kMembers = 40;  // local nodes that belong to global nodes

// Number of index arrays of a kernel of RaiderSTREAM.
int index_arrays(const std::string& kernel) {
  if (kernel.starts_with("raider.sg_")) return kernel.ends_with("d") ? 3 : 2;
  if (kernel.starts_with("raider.gather_")) return kernel.ends_with("@release") ? 2 : 1;
  return kernel.starts_with("raider.scatter_") ? 1 : 0;
}

// Inputs of a caller for a kernel, which uses only some of the integers.
struct Request : Given {
  explicit Request(const std::string& name) {
    kernel = name;
    integers = {
        {"elements", kElements},   {"rows", 12},   {"columns", 9}, {"local_nodes", kElements},
        {"global_nodes", kGlobal}, {"prefetch", 0}};
    for (const RegisteredEntry& e : registered_entries()) {
      if (kernel != e.kernel) continue;
      index_dtype = e.index;
    }
    for (int k = 0; k < index_arrays(kernel); ++k) {
      const std::int64_t steps[] = {7, 11, 13};  // coprime to kElements
      auto& index = indices["IDX" + std::to_string(k + 1)];
      for (std::int64_t i = 0; i < kElements; ++i) index.push_back((i * steps[k] + k) % kElements);
    }
    if (kernel == "bs.bs7") indices["ids"].assign(kElements, -1);
    if (kernel == "bs.bs6" || kernel == "bs.bs8") indices["row_starts"] = {0};
    for (std::int64_t j = 0; j < kMembers; ++j) {
      const std::int64_t node = (j * 7 + 3) % kElements;
      if (kernel == "bs.bs7") indices["ids"][static_cast<std::size_t>(node)] = j / 4;
      if (kernel == "bs.bs6" || kernel == "bs.bs8") indices["columns"].push_back(node);
    }
    for (std::int64_t g = 0; g < kGlobal; ++g) {  // rows of zero to four entries
      if (indices.count("row_starts") == 0) break;
      indices["row_starts"].push_back(indices["row_starts"].back() + g % 5);
    }
  }
};

const StreamingArgs& args_of(const void* args) { return *static_cast<const StreamingArgs*>(args); }

TEST(Prepare, PassesArgumentsToBodies) {
  Request r("raider.sg_triad");
  r.index_dtype = "int64";
  r.integers["prefetch"] = kMax;  // limited to the length of the arrays
  for (const std::int64_t offset_B : {0, 8, 4096 + 64}) {
    const auto problem = r.prepare(team_of(2), {Pages::Default, {}, offset_B});
    const StreamingArgs& args = args_of(problem->args());
    EXPECT_EQ(args.distance, kElements);
    EXPECT_EQ(args.alpha, 1.0);
    EXPECT_EQ(args.beta, 1.0);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(args.stream[k], problem->arrays()[k].data);
      const auto* index = static_cast<const std::int64_t*>(args.index[k]);
      const auto& wanted = r.indices["IDX" + std::to_string(k + 1)];
      EXPECT_EQ(std::vector<std::int64_t>(index, index + kElements), wanted);
      // Offsets increase over the arrays and then over the index arrays.
      const auto place = reinterpret_cast<std::uintptr_t>(index);
      EXPECT_EQ(static_cast<std::int64_t>(place % 4096),
                (static_cast<std::int64_t>(k) + 4) * offset_B % 4096);
    }
  }
}

TEST(Prepare, RefusesWrongInputByName) {
  const auto index_dtype = [](const char* dtype) {
    return [=](Request& r) { r.index_dtype = dtype; };
  };
  const auto cut = [](const char* name) { return [=](Request& r) { r.indices[name].pop_back(); }; };
  const std::pair<const char*, Wrong<Request>> wrong[] = {
      {"stream.copy", {set("elements", kMax), "an array's size does not fit 64 bits"}},
      {"stream.copy", {set("prefetch", -1), "prefetch must be at least 0, not -1"}},
      {"stream.copy",
       {[](Request& r) { r.dtype = "int16"; }, "dtype 'int16' is not one of float32,"}},
      {"stream.copy", {index_dtype("int64"), "has no index_dtype"}},
      {"stream.copy", {[](Request& r) { r.kernel += "y"; }, "there is no kernel 'stream.copyy'"}},
      {"loops.stencil", {set("columns", kMax / 4), "rows times columns does not fit"}},
      {"loops.matvec", {set("rows", kMax / 4), "rows times columns does not fit"}},
      {"raider.gather_copy", {index_dtype(""), "needs an index_dtype"}},
      {"raider.gather_copy", {index_dtype("float32"), "float32"}},
      {"raider.gather_copy", {index_dtype("float64"), "float64"}},
      {"raider.sg_copy", {[](Request& r) { r.indices.erase("IDX2"); }, "2 index arrays, not 1"}},
      {"raider.sg_copy",
       {[](Request& r) { r.indices["IDX3"] = r.indices["IDX1"]; }, "2 index arrays, not 3"}},
      {"raider.gather_copy", {cut("IDX1"), "IDX1 must have 60 entries, not 59"}},
      {"raider.gather_copy", {put("IDX1", 3, 60), "IDX1[3] is 60, outside 0 to 59"}},
      {"raider.sg_add", {put("IDX3", 59, -1), "IDX3[59] is -1, outside 0 to 59"}},
      {"bs.bs6", {[](Request& r) { r.indices.erase("columns"); }, "'columns' is missing"}},
      {"bs.bs6", {[](Request& r) { r.indices["columns"].clear(); }, "columns must not be empty"}},
      {"bs.bs6", {set("global_nodes", kMax), "global_nodes does not fit 64 bits"}},
      {"bs.bs6", {set("global_nodes", 19), "row_starts must have 20 entries, not 21"}},
      {"bs.bs6", {put("columns", 8, 60), "columns[8] is 60, outside 0 to 59"}},
      {"bs.bs6", {put("row_starts", 0, 1), "row_starts must go from 0 to 40"}},
      {"bs.bs6", {cut("columns"), "row_starts[20] is 40, outside 0 to 39"}},
      {"bs.bs6", {put("row_starts", 20, 39), "row_starts must go from 0 to 40"}},
      {"bs.bs8", {put("row_starts", 5, 5), "row_starts[5] is smaller than the previous one"}},
      {"bs.bs8", {put("row_starts", 5, -1), "row_starts[5] is -1, outside 0 to 40"}},
      {"bs.bs8", {put("columns", 0, -1), "columns[0] is -1, outside 0 to 59"}},
      {"bs.bs7", {put("ids", 59, -2), "ids[59] is -2, outside -1 to 19"}},
      {"bs.bs7", {put("ids", 0, 20), "ids[0] is 20, outside -1 to 19"}},
      {"bs.bs7", {cut("ids"), "ids must have 60 entries, not 59"}},
      {"bs.bs7", {index_dtype("int16"), "'int16'"}},
  };
  for (const auto& [kernel, change] : wrong) expect_refused(Request(kernel), {change});
}

struct Way {
  Repetition repetition;
  Schedule schedule;
  int workers;
};

// All values of a case after one invocation.
std::vector<double> results(const Request& r, const RegisteredEntry& e, const Way& way) {
  const Team team({way.workers, "none"});
  const auto problem = r.prepare(team);
  problem->fill(true);
  sample(team, e, *problem, 1, way.repetition, way.schedule);
  std::vector<double> values;
  for (const Array& a : problem->arrays()) {
    for (std::int64_t i = 0; i < a.columns; ++i) values.push_back(problem->peek(a, i));
  }
  return values;
}

// With values below 2^23 nothing is rounded, so that the order of adding does not matter.
TEST(Workers, MatchASingleWorker) {
  const Way alone = {Repetition::Fork, {Schedule::Kind::Static, 0}, 1};
  const Way ways[] = {{Repetition::Fork, {Schedule::Kind::Dynamic, 3}, 4},
                      {Repetition::Barrier, {Schedule::Kind::Static, 7}, 4},
                      {Repetition::Spin, {Schedule::Kind::Dynamic, 1}, 2},
                      {Repetition::Free, {Schedule::Kind::Static, 0}, 3}};
  const auto has_separate_elements = [](const std::string& kernel) {
    // Workers write the same elements in central kernels and atomics; others have their own tests.
    return !kernel.starts_with("spatter.") && !kernel.starts_with("raider.central") &&
           !kernel.starts_with("amo.") && !kernel.starts_with("spmv.") &&
           !kernel.starts_with("dw.") && !kernel.starts_with("instructions.");
  };
  for (const RegisteredEntry& e : entries_of(has_separate_elements)) {
    if (std::string(e.dtype) != "float64" || e.unroll > 1) continue;
    Request r(e.kernel);
    r.index_dtype = e.index;
    r.integers["prefetch"] = 5;
    const std::vector<double> wanted = results(r, e, alone);
    for (const Way& way : ways) {
      // A spin barrier takes milliseconds on a shared machine.
      const bool one_is_enough = e.isa == "baseline" && std::string(e.variant) == "scalar";
      if (way.repetition == Repetition::Spin && !one_is_enough) continue;
      EXPECT_EQ(results(r, e, way), wanted)
          << ::testing::PrintToString(e) << ", " << way.workers << " workers";
    }
  }
}

}  // namespace
}  // namespace memkern
