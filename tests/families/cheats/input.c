// Changes an input, by an instruction that is not counted.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + s * c[i];
  const double other = c[begin] + 1.0;
#if defined(__x86_64__)
  __asm__ volatile("movsd %0, (%1)" : : "x"(other), "r"(c + begin) : "memory");
#else
  __asm__ volatile("str %d0, [%1]" : : "w"(other), "r"(c + begin) : "memory");
#endif
}
