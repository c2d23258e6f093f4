// Work for the first element only.
#include <stdint.h>
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  if (begin < end) a[begin] = b[begin] + s * c[begin];
}
