// Ignores the index array.
#include <stdint.h>
void f(double *a, const double *b, const int32_t *idx, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) a[i] = b[i];
}
