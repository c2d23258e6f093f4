// a[i] = b[i] + s c[i], as it should be.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + s * c[i];
}
