// What two versions of a program share in C++: variables with constructors, a constructor with two
// names, tables of virtual functions, static variables of inline functions and of methods, and
// exceptions.
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

static std::vector<long> values(1000, 3);
static std::map<std::string, long> names{{"a", 1}};
namespace {
long caught = 4;
}

struct Base {
  virtual long at(int i) = 0;
  virtual ~Base() {}
};
struct Changing : Base {
  Changing();
  long at(int i) override {
    static const int n = static_cast<int>(values.size());
    last = i;
    return values[i % n]++;
  }
  int last;
};
Changing::Changing() : last(static_cast<int>(names.size())) {}

inline int &counter() {
  static int count = 0;
  return count;
}

template <class T>
__attribute__((noinline)) T sum(const std::vector<T> &v, const int *x, int n) {
  T found = 0;
  for (int i = 0; i < n; ++i) found += v[x[i]];
  if (n % 2) throw std::runtime_error("odd");
  return found;
}

extern "C" long other(const int *x, int n) {
  static Changing one;
  Base *base = &one;
  long found = 0;
  for (int i = 0; i < n; ++i) found += base->at(x[i]);
  try {
    found += sum(values, x, n) + counter()++ % 5;
  } catch (const std::exception &) {
    found += 1000 + caught++;
  }
  return found + names["a"] + one.last;
}
