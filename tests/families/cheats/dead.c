// Results that are never used, so that the compiler removes the loop.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  double local[4];
  for (int64_t i = begin; i < end; ++i) local[i % 4] = b[i] + s * c[i];
}
