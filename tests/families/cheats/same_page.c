// The same 4 KiB again and again.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  for (int64_t i = begin; i < end; ++i) a[i % 512] = b[i % 512] + s * c[i % 512];
}
