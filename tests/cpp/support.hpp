// Shared by the tests, with the headers that most of them need: memory that ends at an inaccessible
// page, the compiled bodies that this machine supports, and error messages.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/device_memory.hpp"
#include "core/errors.hpp"
#include "core/parts.hpp"
#include "core/sampler.hpp"
#include "core/team.hpp"
#include "engine/prepared.hpp"
#include "engine/problem.hpp"
#include "engine/registry.hpp"

namespace memkern {

// The entry with these properties, or nullptr.
inline const RegisteredEntry* find_entry(const std::string& kernel, const std::string& variant,
                                         const std::string& isa, const std::string& dtype,
                                         const std::string& index, int unroll = 0,
                                         const std::string& template_variant = "") {
  for (const RegisteredEntry& e : registered_entries()) {
    if (kernel == e.kernel && variant == e.variant && isa == e.isa && dtype == e.dtype &&
        index == e.index && unroll == e.unroll && template_variant == e.template_variant) {
      return &e;
    }
  }
  return nullptr;
}

// Number of arrays of a streaming kernel, without the result of a reduction.
inline int streams_of(const std::string& kernel) {
  const std::vector<DeclaredArray> all = arrays_of(declaration_of(kernel));
  return static_cast<int>(std::count_if(all.begin(), all.end(),
                                        [](const DeclaredArray& a) { return a.name != "result"; }));
}

// Printed by GoogleTest for a parameter of a test.
inline void PrintTo(const RegisteredEntry& e, std::ostream* out) {
  *out << e.kernel << ' ' << e.variant << ' ' << e.isa << ' ' << e.dtype << ' ' << e.index
       << " unroll " << e.unroll << ' ' << e.template_variant;
}

namespace testing {

// A folder for copies of the kernel's files, which is removed in the end.
class FakeRoot : public ::testing::Test {
 protected:
  FakeRoot() {
    std::string pattern = (std::filesystem::temp_directory_path() / "root-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~FakeRoot() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

// A team of this many workers, which are bound to no unit.
inline const Team& team_of(int workers) {
  static std::map<int, Team> teams;
  return teams.try_emplace(workers, TeamRequest{workers, "none"}).first->second;
}

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Bytes of address space (VmSize) or of resident memory (VmRSS) of this process.
inline std::int64_t status_B(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kB = 0;
    if (words >> name >> kB && name == key + ":") return kB * 1024;
  }
  return -1;
}

// The values as T, followed by zeros.
template <class T>
std::vector<T> as(const auto& values, std::int64_t zeros = 0) {
  std::vector<T> all;
  for (const auto value : values) all.push_back(static_cast<T>(value));
  all.insert(all.end(), at(zeros), T{});
  return all;
}

// An array whose last element is followed by a page that faults when it is touched.
template <class T>
class Fenced {
 public:
  explicit Fenced(const std::vector<T>& values)
      : size_(static_cast<std::int64_t>(values.size())),
        buffer_(get_buffer(size_ * static_cast<std::int64_t>(sizeof(T)))) {
    data_ = reinterpret_cast<T*>(buffer_->data() + buffer_->capacity()) - size_;
    std::copy(values.begin(), values.end(), data_);
  }
  ~Fenced() { spare().push_back(std::move(buffer_)); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  T* data() { return data_; }
  std::vector<T> values() const { return {data_, data_ + size_}; }

 private:
  // Mappings are reused, because tests create several hundred thousand arrays.
  static std::vector<std::unique_ptr<Buffer>>& spare() {
    static std::vector<std::unique_ptr<Buffer>> buffers;
    return buffers;
  }
  static std::unique_ptr<Buffer> get_buffer(std::int64_t bytes) {
    constexpr std::int64_t kMin_B = 1 << 16;
    auto& all = spare();
    const auto fits = [&](const auto& buffer) { return buffer->capacity() >= bytes; };
    const auto found = std::find_if(all.rbegin(), all.rend(), fits);
    if (found == all.rend()) {
      return std::make_unique<Buffer>(std::max(bytes, kMin_B), Placement{});
    }
    std::swap(*found, all.back());
    auto buffer = std::move(all.back());
    all.pop_back();
    return buffer;
  }

  std::int64_t size_;
  std::unique_ptr<Buffer> buffer_;
  T* data_;
};

// A problem whose arrays a test declares.
class Declared : public Problem {
 public:
  explicit Declared(const Team& team, const char* arrays = "", const Placement& placement = {})
      : Problem({"declared", arrays, 0, ""}, team, placement) {}
  Declared(const Team& team, const char* arrays, std::int64_t offset_B)
      : Declared(team, arrays, Placement{Pages::Default, {}, offset_B}) {}
  const void* args() const override { return this; }
  std::int64_t count() const override { return 1; }
  using Problem::add_array;
  using Problem::add_data;
  using Problem::add_indices;
  using Problem::check_starts;
  using Problem::commit;
  using Problem::data;
  using Problem::indices;
  using Problem::own;
  using Problem::own_indices;
};

using Integers = std::vector<std::int64_t>;

inline IndexView view_of(const Integers& values) { return {values.data(), std::ssize(values)}; }

// Views of lists, which must outlive them.
inline std::map<std::string, IndexView> views_of(const std::map<std::string, Integers>& lists) {
  std::map<std::string, IndexView> all;
  for (const auto& [name, values] : lists) all[name] = view_of(values);
  return all;
}

// What a caller gives to prepare a problem.
struct Given {
  std::string kernel;
  std::string dtype = "float64";
  std::string index_dtype;
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> numbers;
  std::map<std::string, Integers> indices;

  std::unique_ptr<Problem> prepare(const Team& team, const Placement& placement = {}) const {
    Inputs inputs;
    inputs.integers = integers;
    inputs.numbers = numbers;
    inputs.indices = views_of(indices);
    return make_problem(kernel, dtype, index_dtype, inputs, team, placement);
  }
};

// An element of a case's array.
inline double element(const Prepared& prepared, const char* array, std::int64_t position) {
  return prepared.problem().peek(prepared.problem().array(array), position);
}

// One sample of all iterations of a case by an entry.
inline void sample(const Team& team, const RegisteredEntry& e, Problem& problem,
                   std::int64_t invocations, Repetition repetition = Repetition::Fork,
                   Schedule schedule = {}) {
  const Boundaries boundaries = problem.boundaries();
  const Step step{e.body, e.finish, problem.args(), problem.count(),
                  boundaries.empty() ? nullptr : boundaries.data()};
  const Team::Session session(team);
  Sampler(team, schedule, repetition).sample({&step, 1}, invocations);
  problem.mark_written();
}

// Pseudo-random integer in [0, bound), without a period that a vector's width could hide.
inline std::int64_t scattered(std::int64_t i, std::int64_t salt, std::int64_t bound) {
  std::uint64_t x = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 29)) + static_cast<std::uint64_t>(salt) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 32)) * 0x94D049BB133111EBU;
  return static_cast<std::int64_t>((x >> 33) % static_cast<std::uint64_t>(bound));
}

template <class T>
std::vector<T> scattered_values(std::int64_t size, std::int64_t salt, std::int64_t bound) {
  std::vector<T> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(static_cast<T>(scattered(i, salt, bound)));
  return all;
}

// `size` numbers that ascend from `first`.
template <class T = std::int64_t>
std::vector<T> ascending(std::int64_t size, std::type_identity_t<T> first = 0) {
  std::vector<T> all(at(size));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// 0 to size - 1 in pseudo-random order.
template <class I = std::int64_t>
std::vector<I> permutation(std::int64_t size, std::int64_t salt) {
  std::vector<I> all = ascending<I>(size);
  for (std::int64_t i = size - 1; i > 0; --i) {
    std::swap(all[static_cast<std::size_t>(i)],
              all[static_cast<std::size_t>(scattered(i, salt, i + 1))]);
  }
  return all;
}

// The entries that this machine supports, of the kernels whose names `wanted` accepts.
template <class Wanted>
std::vector<RegisteredEntry> entries_of(const Wanted& wanted) {
  const std::vector<std::string> isas = supported_isas();
  std::vector<RegisteredEntry> all;
  for (const RegisteredEntry& e : registered_entries()) {
    const bool runs = std::find(isas.begin(), isas.end(), e.isa) != isas.end();
    if (runs && wanted(std::string(e.kernel))) all.push_back(e);
  }
  return all;
}

inline std::vector<RegisteredEntry> entries_of(const std::initializer_list<const char*>& kernels) {
  return entries_of([&](const std::string& kernel) {
    return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
  });
}

inline std::string name_of(const ::testing::TestParamInfo<RegisteredEntry>& tried) {
  const RegisteredEntry& e = tried.param;
  std::string name = std::string(e.kernel) + "_" + e.variant + "_" + e.isa + "_" + e.dtype;
  if (*e.index != '\0') name += std::string("_") + e.index;
  if (e.unroll != 0) name += "_by" + std::to_string(e.unroll);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

// Changes that make a request invalid: another integer, or another entry of an index array.
inline auto set(const char* name, std::int64_t value) {
  return [=](auto& request) { request.integers[name] = value; };
}
inline auto put(const char* name, std::int64_t i, std::int64_t value) {
  return [=](auto& request) { request.indices[name][at(i)] = value; };
}

// Calls fn<T, I>() with the types of an entry's values and indices.
template <class Fn>
void with_types(const RegisteredEntry& e, const Fn& fn) {
  const bool wide = std::string(e.dtype) == "float64";
  const bool narrow_index = std::string(e.index) == "int32";
  if (wide && narrow_index) fn.template operator()<double, std::int32_t>();
  if (wide && !narrow_index) fn.template operator()<double, std::int64_t>();
  if (!wide && narrow_index) fn.template operator()<float, std::int32_t>();
  if (!wide && !narrow_index) fn.template operator()<float, std::int64_t>();
}

// A device without memory: it grants requests of any size, keeps no values, and counts allocations.
class FakeDevice : public DeviceMemory {
 public:
  std::int64_t free = kMax;
  int allocated = 0;

  ~FakeDevice() override { Arena::release_pool(); }
  const std::string& name() const override { return name_; }
  std::int64_t free_B() const override { return free; }
  std::byte* allocate(std::int64_t) override {
    ++allocated;
    return new std::byte[1];
  }
  void release(std::byte* data) noexcept override {
    --allocated;
    delete[] data;
  }
  void write(std::byte*, const void*, std::int64_t) override {}
  void read(void*, const std::byte*, std::int64_t) const override {}
  void fill(const char*, std::byte*, std::int64_t, std::int64_t, std::uint32_t) override {}

 private:
  std::string name_ = "fake";
};

// The message of the error that `action` throws; fails the test if it throws none.
template <class Error, class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

inline ::testing::AssertionResult contains(const std::string& message, const std::string& words) {
  if (message.find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << message << "' lacks '" << words << "'";
}

// Whether `action` is refused by an error with these words.
template <class Error = InputError, class Action>
::testing::AssertionResult is_refused(Action action, const std::string& words) {
  return contains(refusal<Error>(action), words);
}

// A change, and words of the sentence that refuses a request with it.
template <class R>
struct Wrong {
  std::function<void(R&)> spoil;
  std::string says;
};

// Expects that one worker and several refuse the request with each of these changes.
template <class R>
void expect_refused(const R& good, const std::vector<Wrong<R>>& wrong) {
  for (const Wrong<R>& w : wrong) {
    for (const int workers : {1, 3}) {
      R request = good;
      w.spoil(request);
      const std::string message = refusal<InputError>([&] { request.prepare(team_of(workers)); });
      EXPECT_TRUE(contains(message, w.says)) << request.kernel;
      EXPECT_EQ(message.find('\n'), std::string::npos);
    }
  }
}

}  // namespace testing
}  // namespace memkern
