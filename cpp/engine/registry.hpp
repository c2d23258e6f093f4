// Tables of compiled bodies, one for each instruction set and technique.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/body.hpp"

namespace memkern {

// One compiled body. Tables of entries are constant data: a table built by code inside a target's
// region would run that target's instructions at load time.
struct Entry {
  const char* kernel;
  const char* variant;
  const char* dtype;
  const char* index;  // type of the indices; "" if there are none
  Body body;
  Finish finish;
  int unroll = 0;   // vectors or accumulators per step; 0 for the kernel's default
  int indices = 0;  // number of index arrays; 0 if only the family's case knows it
  const char* template_variant = "";  // template variant of the kernel, such as "add/relaxed/used"
  int vector_B = 0;  // least size of vectors that the body needs; 0 if it adapts to theirs
};

// An integer that every case of a kernel has, and its range.
struct DeclaredInteger {
  const char* name;
  std::int64_t least = INT64_MIN;
  std::int64_t most = INT64_MAX;
};

// Non-owning view of a constant table.
class DeclaredIntegers {
 public:
  constexpr DeclaredIntegers() = default;
  template <std::size_t size>
  constexpr DeclaredIntegers(const DeclaredInteger (&table)[size])
      : begin_(table), end_(table + size) {}
  constexpr const DeclaredInteger* begin() const { return begin_; }
  constexpr const DeclaredInteger* end() const { return end_; }

 private:
  const DeclaredInteger* begin_ = nullptr;
  const DeclaredInteger* end_ = nullptr;
};

// Properties of a kernel that are the same for all its entries, declared next to its operation or
// its case.
struct Declaration {
  const char* kernel;
  const char* arrays;   // in the order of the operation, such as "a:w b:r c:u[rows * columns]":
                        // written, read or updated, and the shape unless it is [elements]
  double flops;         // per element
  const char* scalars;  // with their defaults, such as "alpha=3 beta=-1"
  double amos = 0;      // atomic operations per iteration
  DeclaredIntegers integers = {};
};

// One array of a declaration.
struct DeclaredArray {
  std::string name;
  char role = 'r';  // or w or u
  std::string shape;
};
std::vector<DeclaredArray> arrays_of(const Declaration& declaration);

// Number of arrays in a declaration.
constexpr int arrays_in(const char* arrays) {
  int count = 0;
  for (; *arrays != '\0'; ++arrays) count += *arrays == ':' ? 1 : 0;
  return count;
}

// All declarations in this binary, in order of registration.
const std::vector<Declaration>& declarations();
// The declaration of a kernel. Throws InputError if there is none.
const Declaration& declaration_of(const std::string& kernel);
void add_declarations(const Declaration* declared, std::size_t size);
// A copy of a text for declarations and entries that are made at run time; it is never freed.
const char* kept(const std::string& text);

struct RegisteredEntry : Entry {
  std::string isa;
};

// All entries of all targets in this binary, in order of registration. Entries whose vectors are
// longer than those of this processor, which SVE leaves open, are left out.
const std::vector<RegisteredEntry>& registered_entries();
void add_entry(const Entry& entry, const std::string& isa);
// Names of the instruction sets in this binary that this processor supports, widest first.
std::vector<std::string> supported_isas();
// Bytes in a vector of an instruction set. That of SVE depends on the processor: 0 without SVE.
int vector_size(const std::string& isa);

// Registers one target's table; `target` is Highway's bit for it.
class TableRegistrar {
 public:
  TableRegistrar(std::int64_t target, const Entry* entries, std::size_t size);
};

}  // namespace memkern
