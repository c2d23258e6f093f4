// Functions that are given at run time, by their addresses.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace memkern {

// A function of pointers to the elements of its arrays, of begin and end of the iterations that it
// runs, and of parameters: first those of type int64_t, then those of type double.
struct Function {
  // Name, role (r, w, u, of a sum s, of an index array i), and type of the elements.
  using Argument = std::tuple<std::string, char, std::string>;

  static constexpr std::size_t kMostArrays = 8;
  static constexpr std::size_t kMostIntegers = 3;
  static constexpr std::size_t kMostNumbers = 4;

  std::string kernel;
  std::uintptr_t address = 0;
  std::string dtype;
  std::vector<Argument> arrays;
  std::vector<std::string> integers;
  std::vector<std::string> numbers;
};

// Registers a function as a kernel of the family `own`, unless there is one of this name. Throws
// InputError if it has too many arrays or parameters, or unknown types.
void add_function(const Function& function);

}  // namespace memkern
