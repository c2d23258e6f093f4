// Prepares cases of functions that are given at run time. The caller vouches for their accesses.
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/errors.hpp"
#include "engine/problem.hpp"
#include "families/own/function.hpp"

namespace memkern {
namespace {

// Distance of the sums of two workers, so that they share no lines that are fetched as a pair.
constexpr std::size_t kApart_B = 256;
// Calls of a worker after which modes are looked at, and then after as many again, since it takes
// 3 ns: a function that changes them does so in its first calls.
constexpr std::int64_t kLooks = 16;

// Modes of floating-point arithmetic: rounding, denormals, traps; not which exceptions occurred.
#if defined(__x86_64__)
unsigned modes() { return _mm_getcsr() & ~0x3FU; }
void set_modes(unsigned to) { _mm_setcsr(to); }
#elif defined(__aarch64__)
std::uint64_t modes() {
  std::uint64_t found = 0;
  asm volatile("mrs %0, fpcr" : "=r"(found));
  return found;
}
void set_modes(std::uint64_t to) { asm volatile("msr fpcr, %0" : : "r"(to)); }
#else
int modes() { return 0; }
void set_modes(int) {}
#endif

struct OwnArgs {
  std::uintptr_t address = 0;
  std::array<std::byte*, Function::kMostArrays> array{};
  std::array<std::size_t, Function::kMostArrays> stride_B{};  // from worker to worker
  std::array<std::int64_t, Function::kMostIntegers> integer{};
  std::array<double, Function::kMostNumbers> number{};
  // Of the sums: the type, the number, where the workers add, and where the results are.
  DType type = DType::F64;
  std::size_t sums = 0;
  std::array<std::byte*, Function::kMostArrays> partial{};
  std::array<std::byte*, Function::kMostArrays> result{};
  // Those of all threads before a call.
  decltype(modes()) usual = modes();
  std::atomic<bool>* changed_modes = nullptr;
  std::int64_t* calls = nullptr;  // of each worker, as far apart as sums
};

template <class T, std::size_t>
using Repeated = T;

// Calls a function with so many arrays, integers and numbers.
template <std::size_t... arrays, std::size_t... integers, std::size_t... numbers>
Body body_of(std::index_sequence<arrays...>, std::index_sequence<integers...>,
             std::index_sequence<numbers...>) {
  return [](const void* args, Range range, int worker) {
    using Called = void (*)(Repeated<void*, arrays>..., std::int64_t, std::int64_t,
                            Repeated<std::int64_t, integers>..., Repeated<double, numbers>...);
    const auto& a = *static_cast<const OwnArgs*>(args);
    const auto w = static_cast<std::size_t>(worker);
    std::bit_cast<Called>(a.address)((a.array[arrays] + w * a.stride_B[arrays])..., range.begin,
                                     range.end, a.integer[integers]..., a.number[numbers]...);
    std::int64_t& calls = a.calls[w * kApart_B / sizeof(std::int64_t)];
    const bool seen = ++calls > kLooks && !a.changed_modes->load(std::memory_order_relaxed);
    if ((seen && calls % kLooks != 0) || modes() == a.usual) return;
    set_modes(a.usual);
    a.changed_modes->store(true, std::memory_order_relaxed);
  };
}

// The body for each number of arrays (from 1), integers and numbers.
template <std::size_t... every>
auto bodies(std::index_sequence<every...>) {
  constexpr std::size_t kNumbers = Function::kMostNumbers + 1;
  constexpr std::size_t kBoth = kNumbers * (Function::kMostIntegers + 1);
  return std::array{body_of(std::make_index_sequence<every / kBoth + 1>(),
                            std::make_index_sequence<every / kNumbers % (kBoth / kNumbers)>(),
                            std::make_index_sequence<every % kNumbers>())...};
}

Body body_of(const Function& f) {
  constexpr std::size_t kNumbers = Function::kMostNumbers + 1;
  constexpr std::size_t kIntegers = Function::kMostIntegers + 1;
  static const auto all =
      bodies(std::make_index_sequence<Function::kMostArrays * kIntegers * kNumbers>());
  return all.at(((f.arrays.size() - 1) * kIntegers + f.integers.size()) * kNumbers +
                f.numbers.size());
}

// Sets the results to the sums over the workers, whose own sums begin again at zero.
void add_sums(const void* args, int workers) {
  const auto& a = *static_cast<const OwnArgs*>(args);
  with_type(a.type, [&]<class T>(T) {
    for (std::size_t k = 0; k < a.sums; ++k) {
      T sum{};
      for (int w = 0; w < workers; ++w) {
        T* own = reinterpret_cast<T*>(a.partial[k] + static_cast<std::size_t>(w) * kApart_B);
        sum = static_cast<T>(sum + std::exchange(*own, T{}));
      }
      *reinterpret_cast<T*>(a.result[k]) = sum;
    }
  });
}

std::vector<std::unique_ptr<Function>>& functions() {
  static std::vector<std::unique_ptr<Function>> all;
  return all;
}

const Function* find(const std::string& kernel) {
  for (const auto& f : functions()) {
    if (f->kernel == kernel) return f.get();
  }
  return nullptr;
}

class OwnProblem : public Problem {
 public:
  OwnProblem(const Function& f, const Inputs& inputs, const Team& team, const Placement& placement)
      : Problem(declaration_of(f.kernel), team, placement), count_(inputs.integer("elements")) {
    if (placement.device != nullptr) throw InputError("own kernels run on processors only");
    args_.address = f.address;
    args_.type = parse_dtype(f.dtype);
    args_.changed_modes = &changed_modes_;
    args_.calls = own(std::vector<std::int64_t>(static_cast<std::size_t>(workers()) * kApart_B /
                                                sizeof(std::int64_t)));
    for (const auto& [name, role, dtype] : f.arrays) {
      const DType type = parse_dtype(dtype);
      const std::int64_t length = role == 's' ? 1 : inputs.integer("length of " + name);
      if (role == 'i') {
        index_dtype_ = dtype;
        add_indices(name, inputs.index(name, length), type, 0, inputs.integer("bound of " + name));
      } else {
        add_array(name, type, length, false);
      }
    }
    commit();
    for (std::size_t k = 0; k < f.arrays.size(); ++k) {
      const auto& [name, role, dtype] = f.arrays[k];
      args_.array[k] = role == 'i' ? indices(name) : array(name).data;
      if (role != 's') continue;
      const std::vector<std::byte> zeros(static_cast<std::size_t>(workers()) * kApart_B);
      args_.result[args_.sums] = args_.array[k];
      args_.array[k] = args_.partial[args_.sums++] = own(zeros);
      args_.stride_B[k] = kApart_B;
    }
    for (std::size_t k = 0; k < f.integers.size(); ++k) {
      args_.integer[k] = inputs.integer(f.integers[k]);
    }
    for (std::size_t k = 0; k < f.numbers.size(); ++k) {
      const auto found = inputs.numbers.find(f.numbers[k]);
      if (found == inputs.numbers.end()) throw InputError(f.numbers[k] + " is missing");
      args_.number[k] = found->second;
    }
  }

  const void* args() const override { return &args_; }
  std::int64_t count() const override { return count_; }
  std::string index_dtype() const override { return index_dtype_; }
  bool may_write_inputs() const override { return true; }
  std::map<std::string, double> facts() const override {
    return {{"changed_modes", changed_modes_ ? 1.0 : 0.0}};
  }

 private:
  OwnArgs args_;
  std::int64_t count_;
  std::string index_dtype_;
  std::atomic<bool> changed_modes_{false};
};

std::unique_ptr<Problem> make(const std::string& kernel, const std::string& /*dtype*/,
                              const std::string& /*index_dtype*/, const Inputs& inputs,
                              const Team& team, const Placement& placement) {
  return std::make_unique<OwnProblem>(*find(kernel), inputs, team, placement);
}

const FamilyRegistrar registrar("own", make, {});

}  // namespace

void add_function(const Function& function) {
  if (find(function.kernel) != nullptr) return;
  if (function.arrays.empty() || function.arrays.size() > Function::kMostArrays ||
      function.integers.size() > Function::kMostIntegers ||
      function.numbers.size() > Function::kMostNumbers) {
    throw InputError("a function has 1 to " + std::to_string(Function::kMostArrays) +
                     " arrays, at most " + std::to_string(Function::kMostIntegers) +
                     " whole numbers and " + std::to_string(Function::kMostNumbers) +
                     " other numbers as parameters");
  }
  std::string declared;
  bool sums = false;
  std::string index_dtype;
  for (const auto& [name, role, dtype] : function.arrays) {
    parse_dtype(dtype);
    if (role == 'i') {
      index_dtype = dtype;
    } else {
      sums = sums || role == 's';
      declared += name + ":" + (role == 's' ? "w[1] " : std::string{role, ' '});
    }
  }
  functions().push_back(std::make_unique<Function>(function));
  const Function& f = *functions().back();
  const Declaration declaration{kept(f.kernel), kept(declared), 0, ""};
  add_declarations(&declaration, 1);
  add_entry({kept(f.kernel), "auto", kept(f.dtype), kept(index_dtype), body_of(f),
             sums ? add_sums : nullptr},
            supported_isas().front());
}

}  // namespace memkern
