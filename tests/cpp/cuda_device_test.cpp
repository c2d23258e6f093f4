// Memory, values, checks of bounds, launches and timers of an emulated device; and gather and
// scatter, whose kernels run here block by block, compared with those of the processor.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/cuda/device.hpp"
#include "core/errors.hpp"
#include "core/sampler.hpp"
#include "core/team.hpp"
#include "engine/problem.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using testing::contains;
using testing::Declared;
using testing::refusal;

Device& device() { return cuda::device(0); }

Placement on_device(std::int64_t offset_B = 0, int workers = 1) {
  return {Pages::Default, {}, offset_B, &device(), workers};
}

TEST(DeviceMemory, HoldsTheSameValuesAsHostMemory) {
  const Team team({1, "none"});
  for (const DType type :
       {DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U64}) {
    for (const std::int64_t offset_B : {0, 8, 4096 + 64}) {
      Declared here(team, "read:r written:w", offset_B);
      Declared there(team, "read:r written:w", on_device(offset_B, 5));
      for (Declared* p : {&here, &there}) {
        p->add_array("read", type, 1001, false);
        p->add_array("written", type, 37, true);
        p->commit();
        p->set_seed(3);
        p->fill(true);
      }
      EXPECT_EQ(there.array("written").rows, 5);
      EXPECT_EQ(there.array("written").row_stride, 37);
      for (std::int64_t i = 0; i < 1001; ++i) {
        ASSERT_EQ(there.peek(there.array("read"), i), here.peek(here.array("read"), i)) << i;
      }
      for (std::int64_t i = 0; i < 5 * 37; ++i) {
        ASSERT_EQ(there.peek(there.array("written"), i), here.peek(here.array("written"), i % 37));
      }
      EXPECT_EQ(there.digest("read"), here.digest("read"));
      std::vector<std::byte> copy(static_cast<std::size_t>(1001 * dtype_size(type)));
      std::vector<std::byte> wanted(copy.size());
      there.copy_out(there.array("read"), copy.data());
      here.copy_out(here.array("read"), wanted.data());
      EXPECT_EQ(copy, wanted);
      there.poke(there.array("read"), 1000, 5.0);
      EXPECT_EQ(there.peek(there.array("read"), 1000), 5.0);
      EXPECT_TRUE(contains(refusal<InputError>([&] { there.peek(there.array("read"), 1001); }),
                           "lies outside array 'read'"));
      there.copy_in("read", copy.data());
      EXPECT_EQ(there.digest("read"), here.digest("read"));
      EXPECT_EQ(there.footprint_B(), (1001 + 5 * 37) * dtype_size(type));
      EXPECT_EQ(there.obtained_pages(), "cuda:0");
    }
  }
}

TEST(DeviceMemory, ReceivesCheckedIndices) {
  const Team team({1, "none"});
  // Longer than the pieces in which they are copied.
  std::vector<std::int64_t> values((std::size_t{1} << 20) + 5);
  std::iota(values.begin(), values.end(), 0);
  const std::int64_t bound = std::ssize(values);
  for (const DType type : {DType::I32, DType::I64}) {
    Declared p(team, "", on_device());
    p.add_indices("starts", {values.data(), bound}, type, 0, bound, {}, 3);
    p.commit();
    p.check_starts("starts", bound - 1);
    EXPECT_TRUE(
        contains(refusal<InputError>([&] { p.check_starts("starts", bound); }), "go from 0"));
    std::vector<std::byte> copy(static_cast<std::size_t>(bound * dtype_size(type)));
    device().read(copy.data(), p.indices("starts"), std::ssize(copy));
    std::int64_t last = 0;
    std::memcpy(&last, copy.data() + copy.size() - static_cast<std::size_t>(dtype_size(type)),
                static_cast<std::size_t>(dtype_size(type)));
    EXPECT_EQ(last, bound - 1);
  }
  values.back() = -1;
  Declared p(team, "", on_device());
  p.add_indices("starts", {values.data(), bound}, DType::I64, 0, bound);
  EXPECT_TRUE(
      contains(refusal<InputError>([&] { p.commit(); }), "starts[1048580] is -1, outside 0"));
}

TEST(DeviceMemory, HoldsListsOwnedByACase) {
  const Team team({1, "none"});
  Declared p(team, "", on_device());
  const std::vector<std::int64_t> list{3, 1, 4};
  std::vector<std::int64_t> back(3);
  device().read(back.data(), reinterpret_cast<const std::byte*>(p.own(list)), 24);
  EXPECT_EQ(back, list);
  std::vector<std::int32_t> narrow(3);
  const void* at = p.own_indices("list", list, DType::I32, 5);
  device().read(narrow.data(), static_cast<const std::byte*>(at), 12);
  EXPECT_EQ(narrow, (std::vector<std::int32_t>{3, 1, 4}));
  EXPECT_TRUE(contains(refusal<InputError>([&] { p.own_indices("list", list, DType::I32, 4); }),
                       "list[2] is 4, outside 0 to 3"));
}

TEST(DeviceMemory, IsRefusedBeforeAllocation) {
  const Team team({1, "none"});
  Arena::release_pool();
  const std::int64_t free_B = device().free_B();
  {
    Declared p(team, "huge:r", on_device());
    p.add_array("huge", DType::F64, free_B / 8, false);
    EXPECT_TRUE(contains(refusal<MemoryError>([&] { p.commit(); }), "cuda:0 leaves"));
  }
  Arena::release_pool();
  EXPECT_EQ(device().free_B(), free_B);
  EXPECT_TRUE(
      contains(refusal<MemoryError>([&] { device().allocate(free_B * 2); }), "cuda:0 refused"));
}

TEST(DeviceMemory, IsReusedByLaterCases) {
  const Team team({1, "none"});
  Arena::release_pool();
  const std::int64_t free_B = device().free_B();
  for (int k = 0; k < 3; ++k) {
    Declared p(team, "x:r", on_device());
    p.add_array("x", DType::F64, 1000, false);
    p.commit();
  }
  EXPECT_EQ(device().free_B(), free_B - 8000);
  Arena::release_pool();
  EXPECT_EQ(device().free_B(), free_B);
}

TEST(Devices, AreFoundByNumber) {
  EXPECT_EQ(&cuda::device(0), &cuda::device(0));
  EXPECT_EQ(device().name(), "cuda:0");
  EXPECT_GT(device().units(), 0);
  for (const int wrong : {-1, 1}) {
    EXPECT_TRUE(
        contains(refusal<InputError>([&] { cuda::device(wrong); }), "is not one of cuda:0"));
  }
  for (const DeviceEntry& e : device().entries()) {
    EXPECT_TRUE(e.threads > 0 && e.threads <= device().max_threads()) << e.kernel;
  }
  EXPECT_GT(cuda::copy_s(0, 1 << 20, 3), 0.0);
  EXPECT_TRUE(contains(refusal<InputError>([] { cuda::copy_s(0, 0, 3); }), "at least 1"));
}

struct Case {
  std::string kernel;
  std::vector<std::int64_t> pattern;
  std::vector<std::int64_t> delta;
  std::int64_t count;
  std::int64_t wrap;
};

std::unique_ptr<Problem> prepare(const Case& c, const Entry& e, const Team& team,
                                 const Placement& placement) {
  std::map<std::string, std::vector<std::int64_t>> lists;
  std::vector<std::int64_t> inner(c.pattern.size());
  std::iota(inner.rbegin(), inner.rend(), 0);
  const bool multi = c.kernel.starts_with("multi");
  if (multi) lists["pattern"] = c.pattern;
  lists["pattern_gather"] = multi ? inner : c.pattern;
  lists["pattern_scatter"] =
      multi ? inner : std::vector<std::int64_t>(c.pattern.rbegin(), c.pattern.rend());
  lists["delta_gather"] = lists["delta_scatter"] = c.delta;
  Inputs inputs;
  inputs.integers = {{"count", c.count}, {"wrap", c.wrap}, {"prefetch", 0}};
  for (const auto& [name, values] : lists)
    inputs.indices[name] = {values.data(), std::ssize(values)};
  return find_family("spatter")(e.kernel, e.dtype, e.index, inputs, team, placement);
}

std::vector<std::byte> bytes_of(const Problem& p, const Array& a) {
  std::vector<std::byte> all(static_cast<std::size_t>(a.rows * a.columns * dtype_size(a.type)));
  p.copy_out(a, all.data());
  return all;
}

// No two instances write the same element, so that their order does not matter.
std::vector<Case> apart(const std::string& kernel) {
  std::vector<std::int64_t> is_long(7000);
  std::iota(is_long.begin(), is_long.end(), 0);
  return {{kernel, {0, 1, 2, 3}, {4}, 50, 1},
          {kernel, {5, 0, 3}, {-8}, 41, 3},
          {kernel, {2, 0, 1}, {3, 9, 4}, 33, 4},
          {kernel, {0}, {1}, 2500, 1},
          // Longer than a block, and too long for shared memory.
          {kernel, is_long, {7000}, 5, 2}};
}

TEST(Spatter, MatchesTheProcessor) {
  const Team team({1, "none"});
  int tried = 0;
  for (const DeviceEntry& e : device().entries()) {
    const std::string kernel = e.kernel;
    if (!kernel.starts_with("spatter.")) continue;
    const RegisteredEntry* host = find_entry(kernel, "scalar", "baseline", e.dtype, e.index);
    ASSERT_NE(host, nullptr) << kernel;
    for (const Case& c : apart(kernel.substr(8))) {
      const auto here = prepare(c, e, team, {});
      const auto there = prepare(c, e, team, on_device(tried % 2 == 0 ? 0 : 24));
      for (const int block : {1, 32, 100, 1024}) {
        for (const Range range : {Range{0, c.count}, Range{c.count / 3, c.count - 1}}) {
          here->fill(true);
          there->fill(true);
          host->body(here->args(), range, 0);
          device().sample({{e.launch, there->args(), range, block}}, 1, Timer::Host, nullptr);
          here->mark_written();
          there->mark_written();
          for (const Array& a : here->arrays()) {
            ASSERT_EQ(bytes_of(*there, there->array(a.name)), bytes_of(*here, a))
                << kernel << " " << a.name << " unroll " << e.unroll << " block " << block;
          }
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 1000);
}

TEST(Timers, RunAsOftenAsRequested) {
  const Team team({1, "none"});
  const auto count_calls = [](const void* args, Range range, int threads, void* queue) {
    EXPECT_EQ(range.end, 7);
    EXPECT_EQ(threads, 3);
    EXPECT_NE(queue, nullptr);
    ++*static_cast<int*>(const_cast<void*>(args));
  };
  for (const Timer timer : {Timer::Host, Timer::Events}) {
    int first = 0;
    int second = 0;
    const std::vector<DeviceStep> steps{{count_calls, &first, {0, 7}, 3},
                                        {count_calls, &second, {0, 7}, 3}};
    EXPECT_GT(device().sample(steps, 5, timer, nullptr), 0.0);
    double per_step[2] = {0.0, 0.0};
    const double all = device().sample(steps, 3, timer, per_step);
    EXPECT_EQ(first, 8);
    EXPECT_EQ(second, 8);
    EXPECT_GT(all, 0.0);
    EXPECT_NEAR(per_step[0] + per_step[1], all, 1e-3);
  }
  device().flush();
  device().flush();
}

}  // namespace
}  // namespace memkern
