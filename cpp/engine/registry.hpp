// Tables of bodies, one for each instruction set and technique, and how to find an entry in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/body.hpp"

namespace memkern {

// One body as it was compiled. Tables of entries are constant data: a table built by code inside
// a target's region would run that target's instructions at load time.
struct Entry {
  const char* kernel;
  const char* variant;
  const char* dtype;
  const char* index;  // "" where a kernel has no index array
  Body body;
  Finish finish;
  int arrays = 0;         // that the body takes as its spec declares them; 0 where the family knows
  int unroll = 0;         // vectors or accumulators per step; 0 for the kernel's own choice
  int indices = 0;        // index arrays that the body takes; 0 where the family knows
  const char* form = "";  // which of the operations that the kernel is built with
};

// What a kernel is, whatever it is built for: declared once, beside its operation.
struct Declaration {
  const char* kernel;
  const char* arrays;  // in the order in which its body takes them, such as "a:w b:r c:u": written,
                       // read or updated
  double flops;        // for each element
  const char* scalars;  // with their defaults, such as "alpha=3 beta=-1"
};

// How many arrays a declaration names.
constexpr int arrays_in(const char* arrays) {
  int count = 0;
  for (; *arrays != '\0'; ++arrays) count += *arrays == ':' ? 1 : 0;
  return count;
}

// All declarations in this binary, in order of registration.
const std::vector<Declaration>& declarations();

class DeclarationRegistrar {
 public:
  DeclarationRegistrar(const Declaration* declared, std::size_t size);
};

struct RegisteredEntry : Entry {
  std::string isa;
};

// All entries of all targets in this binary, in order of registration.
const std::vector<RegisteredEntry>& registered_entries();
// The entry asked for, or nullptr.
const RegisteredEntry* find_entry(const std::string& kernel, const std::string& variant,
                                  const std::string& isa, const std::string& dtype,
                                  const std::string& index, int unroll = 0,
                                  const std::string& form = "");
// Names of the instruction sets in this binary that this processor runs, widest first.
std::vector<std::string> supported_isas();
// Bytes in a vector of an instruction set; 0 where that is for the processor to say.
int vector_size(const std::string& isa);

// Registers one target's table; `target` is Highway's bit for it.
class TableRegistrar {
 public:
  TableRegistrar(std::int64_t target, const Entry* entries, std::size_t size);
};

}  // namespace memkern
