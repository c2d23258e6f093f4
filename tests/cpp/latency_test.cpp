// Chains of loads along a ring, concurrent traffic, and two workers that write in turn. The thread
// sanitizer checks the workers of an invocation.
#include "families/latency/args.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

constexpr std::int64_t kLines = 60;
constexpr std::int64_t kLine_B = 64;

struct Latency {
  explicit Latency(const std::string& kernel) {
    request.kernel = kernel;
    request.dtype = "uint64";
    request.index_dtype = "int64";
    request.threads = 1;
    request.repetition = "barrier";
    request.template_variant = "1";
    request.inputs.integers = {{"lines", kLines}, {"line_B", kLine_B}, {"chains", 1},
                               {"steps", kLines}, {"workers", 1},      {"prefetch", 0}};
    if (kernel == "latency.loaded") {
      request.template_variant = "";
      set({{"traffic_lines", 20}, {"loads", 5}, {"pause", 3}});
      workers(2);
    }
    if (kernel == "latency.ping_pong") {
      request.index_dtype = "";
      request.template_variant = "load";
      request.inputs.integers = {{"lines", 1}, {"line_B", kLine_B}, {"turns", 100}};
      request.threads = 2;
    }
  }
  void set(const std::map<std::string, std::int64_t>& integers) {
    for (const auto& [name, value] : integers) request.inputs.integers[name] = value;
  }
  void workers(int count) {
    request.threads = count;
    set({{"workers", count}});
  }
  void chains(int count) {
    request.template_variant = std::to_string(count);
    set({{"chains", count}});
  }
  const Request& made() {
    request.inputs.indices["order"] = {order.data(), std::ssize(order)};
    return request;
  }

  Request request;
  std::vector<std::int64_t> order = permutation(kLines, 3);
};

std::uint64_t word(const Prepared& prepared, const char* array, std::int64_t row,
                   std::int64_t column) {
  const Array& a = prepared.problem().array(array);
  std::uint64_t value = 0;
  const std::int64_t at = row * a.columns + column;
  prepared.problem().peek(a, {&at, 1}, &value);
  return value;
}

void set_word(const Prepared& prepared, const char* array, std::int64_t row, std::int64_t column,
              double value) {
  const Array& a = prepared.problem().array(array);
  prepared.problem().poke(a, row * a.columns + column, value);
}

TEST(Chase, FollowsAnyNumberOfChainsFromEquallyDistantPlaces) {
  std::set<std::string> forms;
  for (const RegisteredEntry& e : entries_of({"latency.chase"})) forms.insert(e.template_variant);
  ASSERT_EQ(forms.size(), 24U);
  for (const std::string& form : forms) {
    const int chains = std::stoi(form);
    for (const int workers : {1, 2, 3}) {
      Latency latency("latency.chase");
      latency.chains(chains);
      latency.workers(workers);
      latency.set({{"steps", 7}});
      Prepared prepared(latency.made());
      for (int w = 0; w < workers; ++w) {
        set_word(prepared, "ends", w, ChaseArgs::kAccesses, 0);
      }
      prepared.run(3);
      for (int w = 0; w < workers; ++w) {
        EXPECT_EQ(word(prepared, "ends", w, ChaseArgs::kAccesses),
                  static_cast<std::uint64_t>(3 * 7 * chains));
        for (int j = 0; j < chains; ++j) {
          const std::int64_t begin = (w * chains + j) * kLines / (workers * chains);
          const auto at = static_cast<std::size_t>((begin + 3 * 7) % kLines);
          EXPECT_EQ(word(prepared, "ends", w, j),
                    static_cast<std::uint64_t>(latency.order[at] * kLine_B))
              << chains << " chains, worker " << w << " of " << workers << ", chain " << j;
        }
      }
    }
  }
}

TEST(Chase, ItsRingIsNoArrayOfTheCaller) {
  Latency latency("latency.chase");
  const Prepared prepared(latency.made());
  EXPECT_THROW(static_cast<void>(prepared.problem().array("ring")), InputError);
}

TEST(Loaded, LoadsAndStoresAddUp) {
  constexpr std::int64_t kRow = 1;  // of the worker that makes traffic
  for (const std::int64_t loads : {0, 1, 4, 5, 8}) {
    Latency latency("latency.loaded");
    latency.set({{"loads", loads}});
    Prepared prepared(latency.made());
    for (const auto& [variant, isa] : prepared.runner().candidates()) {
      prepared.select(variant, isa);
      // The first group of an invocation begins where the previous invocation ended.
      prepared.run(3);
      auto at = static_cast<std::int64_t>(word(prepared, "tally", kRow, LoadedArgs::kFrom));
      for (int column = 0; column < 3; ++column) set_word(prepared, "tally", kRow, column, 0);
      prepared.run(5);
      const std::uint64_t loaded = word(prepared, "tally", kRow, LoadedArgs::kLoaded);
      const std::uint64_t stored = word(prepared, "tally", kRow, LoadedArgs::kStored);
      EXPECT_EQ(loaded * static_cast<std::uint64_t>(8 - loads),
                stored * static_cast<std::uint64_t>(loads));
      std::uint64_t sum = 0;
      for (std::int64_t line = 0; line < static_cast<std::int64_t>(loaded); line += loads) {
        for (std::int64_t w = 8 * at; w < 8 * (at + loads); ++w) {
          sum += word(prepared, "source", kRow, w);
        }
        at = at + 2 * loads > 20 ? 0 : at + loads;
      }
      EXPECT_EQ(word(prepared, "tally", kRow, LoadedArgs::kSum), sum) << loads << ' ' << variant;
      if (loads > 0) {
        EXPECT_EQ(word(prepared, "tally", kRow, LoadedArgs::kFrom), static_cast<std::uint64_t>(at));
      }
      // All words of the last group's lines are the number of lines stored before it.
      const std::int64_t stores = 8 - loads;
      auto to = static_cast<std::int64_t>(word(prepared, "tally", kRow, LoadedArgs::kTo));
      if (stores == 0 || stored == 0) continue;
      if (to == 0) to = 20 / stores * stores;
      for (std::int64_t w = 8 * (to - stores); w < 8 * to; ++w) {
        EXPECT_EQ(word(prepared, "target", kRow, w), stored - static_cast<std::uint64_t>(stores));
      }
    }
  }
}

TEST(Loaded, TellsWhatWasMovedInEachSample) {
  Latency latency("latency.loaded");
  Prepared prepared(latency.made());
  for (int column = 0; column < 2; ++column) set_word(prepared, "tally", 1, column, 0);
  constexpr bool kWarmsUp = false;  // all transfers are counted
  Prepared::Sampling sampling(prepared, 3, now() + 60.0, {}, true, kWarmsUp);
  std::array<Conditions, 2> conditions;
  double moved_B = 0.0;
  for (Conditions& each : conditions) {
    double seconds = 0.0;
    double sample_B = 0.0;
    sampling.sample(seconds, {}, each, {}, {}, {}, &sample_B);
    moved_B += 3 * sample_B;
  }
  sampling.finish();
  const std::uint64_t lines = word(prepared, "tally", 1, LoadedArgs::kLoaded) +
                              word(prepared, "tally", 1, LoadedArgs::kStored);
  EXPECT_NEAR(moved_B, static_cast<double>(lines) * kLine_B, 1e-6);
}

TEST(PingPong, BothWorkersTakeAllTheirTurns) {
  for (const auto& [lines, how] :
       {std::pair{1, "load"}, std::pair{2, "load"}, std::pair{1, "swap"}}) {
    for (const char* repetition : {"fork", "barrier", "spin", "free"}) {
      Latency latency("latency.ping_pong");
      latency.set({{"lines", lines}});
      latency.request.template_variant = how;
      latency.request.repetition = repetition;
      Prepared prepared(latency.made());
      for (std::int64_t row = 0; row < 2; ++row) {
        set_word(prepared, "tally", row, PingPongArgs::kTurns, 0);
        set_word(prepared, "tally", row, PingPongArgs::kWrong, 0);
      }
      prepared.run(3);
      prepared.run_range(0, 1);  // runs a whole invocation
      for (std::int64_t row = 0; row < 2; ++row) {
        EXPECT_EQ(word(prepared, "tally", row, PingPongArgs::kTurns), 400U) << repetition;
        EXPECT_EQ(word(prepared, "tally", row, PingPongArgs::kWrong), 0U) << repetition;
      }
    }
  }
}

TEST(Prepare, RefusesWhatWouldLeaveTheBufferOrCannotRun) {
  using Change = std::function<void(Latency&)>;
  const auto with = [](const char* name, std::int64_t value) {
    return Change([=](Latency& l) { l.set({{name, value}}); });
  };
  const auto threads = [](int number) {
    return Change([=](Latency& l) { l.request.threads = number; });
  };
  const std::tuple<const char*, Change, const char*> wrong[] = {
      {"chase", [](Latency& l) { l.order[7] = kLines; }, "outside 0 to 59"},
      {"chase", [](Latency& l) { l.order[7] = -1; }, "outside 0 to 59"},
      {"chase", [](Latency& l) { l.order.clear(); }, "order must not be empty"},
      {"chase", with("line_B", 12), "multiple of 8"},
      {"chase", with("chains", 2), "not built as '1'"},
      {"chase", with("workers", 2), "2 workers"},
      {"chase",
       [](Latency& l) {
         l.set({{"steps", kMax}, {"chains", 2}});
       },
       "steps times chains"},
      {"chase", with("lines", kMax), "lines times"},
      {"loaded", with("traffic_lines", 7), "at least 8"},
      {"loaded", with("line_B", 32), "multiple of 64"},
      {"loaded", [](Latency& l) { l.request.offset_B = 8; }, "multiple of 64"},
      {"loaded", [](Latency& l) { l.request.schedule = "dynamic"; }, "static"},
      {"loaded", [](Latency& l) { l.request.chunk = 4; }, "without chunk"},
      {"loaded", [](Latency& l) { l.request.repetition = "free"; }, "'barrier'"},
      {"ping_pong", threads(1), "two workers"},
      {"ping_pong", threads(3), "two workers"},
      {"ping_pong",
       [](Latency& l) {
         l.request.template_variant = "swap";
         l.set({{"lines", 2}});
       },
       "not built as 'swap'"},
  };
  for (const auto& [kernel, spoil, says] : wrong) {
    Latency latency(std::string("latency.") + kernel);
    spoil(latency);
    EXPECT_TRUE(is_refused([&] { const Prepared prepared(latency.made()); }, says)) << kernel;
  }
}

}  // namespace
}  // namespace memkern
