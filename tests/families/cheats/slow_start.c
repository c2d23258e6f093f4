// Most of the time does not depend on the number of iterations.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  for (volatile int k = 0; k < 20000000; ++k) {
  }
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + s * c[i];
}
