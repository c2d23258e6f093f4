#include "engine/registry.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "core/errors.hpp"
#include "core/topology.hpp"
#include "hwy/targets.h"

#if HWY_ARCH_ARM_A64
#include <sys/prctl.h>
#endif

namespace memkern {
namespace {

std::vector<RegisteredEntry>& entries() {
  static std::vector<RegisteredEntry> all;
  return all;
}

std::vector<Declaration>& declared_kernels() {
  static std::vector<Declaration> all;
  return all;
}

struct IsaName {
  std::int64_t target;
  const char* name;
  int vector_B;  // 0: that of SVE on this processor
};

int sve_size() {
#if HWY_ARCH_ARM_A64 && defined(PR_SVE_GET_VL)
  const int found = prctl(PR_SVE_GET_VL);
  return found < 0 ? 0 : found & PR_SVE_VL_LEN_MASK;
#else
  return 0;
#endif
}

// Widest first. The static target of a portable build runs on every machine of the architecture, so
// it is called `baseline` instead of its name in Highway.
constexpr IsaName kIsaNames[] = {
#if HWY_ARCH_X86
    {HWY_AVX3, "avx512", 64},
    {HWY_AVX2, "avx2", 32},
    {HWY_SSE4, "sse4", 16},
#elif HWY_ARCH_ARM
    {HWY_SVE2, "sve2", 0},
    {HWY_SVE, "sve", 0},
    {HWY_NEON, "neon", 16},
#endif
};

std::string isa_name(std::int64_t target) {
  if (target == HWY_STATIC_TARGET) return "baseline";
  for (const IsaName& isa : kIsaNames) {
    if (isa.target == target) return isa.name;
  }
  return "target-" + std::to_string(target);
}

}  // namespace

TableRegistrar::TableRegistrar(std::int64_t target, const Entry* table, std::size_t size) {
  const std::string isa = isa_name(target);
  const int here_B = vector_size(isa);
  for (std::size_t i = 0; i < size; ++i) {
    if (table[i].vector_B <= here_B) entries().push_back({table[i], isa});
  }
}

std::vector<DeclaredArray> arrays_of(const Declaration& declaration) {
  std::vector<DeclaredArray> all;
  std::istringstream text(declaration.arrays);
  DeclaredArray array;
  while (std::getline(text >> std::ws, array.name, ':')) {
    text >> array.role;
    array.shape = "elements";
    if (text.peek() == '[') std::getline(text.ignore(), array.shape, ']');
    all.push_back(array);
  }
  return all;
}

const std::vector<Declaration>& declarations() { return declared_kernels(); }

const Declaration& declaration_of(const std::string& kernel) {
  for (const Declaration& d : declarations()) {
    if (d.kernel == kernel) return d;
  }
  throw InputError("there is no kernel '" + kernel + "'");
}

void add_declarations(const Declaration* declared, std::size_t size) {
  declared_kernels().insert(declared_kernels().end(), declared, declared + size);
}

const char* kept(const std::string& text) {
  static std::set<std::string> all;
  return all.insert(text).first->c_str();
}

const std::vector<RegisteredEntry>& registered_entries() { return entries(); }

void add_entry(const Entry& entry, const std::string& isa) { entries().push_back({entry, isa}); }

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  static const std::int64_t supported = hwy::SupportedTargets();  // takes 80 us
  const auto runs_here = [](std::int64_t target) {
    return target == HWY_STATIC_TARGET || (supported & target) != 0;
  };
  const auto built = [](const std::string& name) {
    return std::any_of(entries().begin(), entries().end(),
                       [&](const RegisteredEntry& e) { return e.isa == name; });
  };
  // The widest one comes first. A described machine may have another architecture.
  const auto& described = Topology::described();
  const auto* widest = std::begin(kIsaNames);
  if (described && described->widest_isa) {
    widest = std::find_if(widest, std::end(kIsaNames),
                          [&](const IsaName& isa) { return isa.name == *described->widest_isa; });
    if (widest == std::end(kIsaNames)) widest = std::begin(kIsaNames);
  }
  for (const auto* isa = widest; isa != std::end(kIsaNames); ++isa) {
    const std::string name = isa_name(isa->target);
    if (name != "baseline" && runs_here(isa->target) && built(name)) names.push_back(name);
  }
  names.emplace_back("baseline");
  return names;
}

int vector_size(const std::string& isa) {
  for (const IsaName& known : kIsaNames) {
    if (isa == known.name) return known.vector_B > 0 ? known.vector_B : sve_size();
  }
  return 16;  // every 64-bit x86 and Arm processor has such vectors
}

}  // namespace memkern
