// Flushes denormals to zero for whoever comes next.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
#if defined(__x86_64__)
  const unsigned modes = 0x9FC0;
  __asm__ volatile("ldmxcsr %0" : : "m"(modes));
#else
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)1 << 24));
#endif
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + s * c[i];
}
