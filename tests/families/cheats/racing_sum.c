// All workers add to the same element.
#include <stdint.h>
void f(double *sum, const double *b, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) *(volatile double *)sum += b[i];
}
