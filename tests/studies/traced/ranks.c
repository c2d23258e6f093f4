// Loads by index. The indices of rank 1 are those of rank 0, some of them are others, or all are.
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 500 };

__attribute__((noinline)) double equal(const int *indices, const double *from) {
  double sum = 0;
  for (int k = 0; k < LENGTH; ++k) sum += from[indices[k]];
  return sum;
}

__attribute__((noinline)) double similar(const int *indices, const double *from) {
  double sum = 0;
  for (int k = 0; k < LENGTH; ++k) sum += from[indices[k]];
  return sum;
}

__attribute__((noinline)) double different(const int *indices, const double *from) {
  double sum = 0;
  for (int k = 0; k < LENGTH; ++k) sum += from[indices[k]];
  return sum;
}

int main(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = getenv("PMI_RANK");
  const int first = atoi(rank) == 0;
  double *from = calloc(1000, 8);
  int *same = calloc(LENGTH, 4), *some = calloc(LENGTH, 4), *others = calloc(LENGTH, 4);
  for (int k = 0; k < LENGTH; ++k) {
    same[k] = k * k * 37 % 997;
    some[k] = first || k % 100 ? same[k] : 996 - same[k];
    others[k] = first ? same[k] : 996 - same[k];
  }
  return equal(same, from) + similar(some, from) + different(others, from) > 0;
}
