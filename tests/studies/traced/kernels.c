// Spatter's kernels, and a product of a sparse matrix in compressed rows and a vector. The index
// arrays are read from arrays.txt, each with its length, and are allocated one by one: adjacent
// arrays would look like one.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) void gather(const int *indices, int length, double *from, double *dense,
                                      long count, long delta) {
  for (long i = 0; i < count; ++i)
    for (int j = 0; j < length; ++j) dense[j] = from[delta * i + indices[j]];
}

__attribute__((noinline)) void mirrored(const int *indices, int length, double *from, double *dense,
                                        long count, long delta) {
  for (long i = 0; i < count; ++i)
    for (int j = 0; j < length; ++j) dense[j] = from[delta * i + 30 - indices[j]];
}

__attribute__((noinline)) void scatter(const long *indices, int length, double *to, double *dense,
                                       long count, long delta) {
  for (long i = 0; i < count; ++i)
    for (int j = 0; j < length; ++j) to[delta * i + indices[j]] = dense[j];
}

__attribute__((noinline)) void gs(const int *in, const int *out, int length, double *from,
                                  double *to, long count) {
  for (long i = 0; i < count; ++i)
    for (int j = 0; j < length; ++j) to[6 * i + out[j]] = from[10 * i + in[j]];
}

__attribute__((noinline)) void multigather(const int *outer, const int *inner, int length,
                                           double *from, double *dense, long count, long delta) {
  for (long i = 0; i < count; ++i)
    for (int j = 0; j < length; ++j) dense[j] = from[delta * i + outer[inner[j]]];
}

__attribute__((noinline)) void cyclic(const int *indices, int length, const long *deltas, int cycle,
                                      double *from, double *dense, long count) {
  for (long i = 0; i < count; ++i) {
    for (int j = 0; j < length; ++j) dense[j] = from[indices[j]];
    from += deltas[i % cycle];
  }
}

__attribute__((noinline)) void product(const int *starts, const int *columns, const double *values,
                                       const double *x, double *y, int rows) {
  for (int i = 0; i < rows; ++i) {
    double sum = 0;
    for (int k = starts[i]; k < starts[i + 1]; ++k) sum += values[k] * x[columns[k]];
    y[i] = sum;
  }
}

static FILE *file;
static int length;

static long *longs(void) {
  if (fscanf(file, "%d", &length) != 1) abort();
  long *values = malloc(length * sizeof *values);
  for (int k = 0; k < length; ++k)
    if (fscanf(file, "%ld", values + k) != 1) abort();
  return values;
}

static int *ints(void) {
  if (fscanf(file, "%d", &length) != 1) abort();
  int *values = malloc(length * sizeof *values);
  for (int k = 0; k < length; ++k)
    if (fscanf(file, "%d", values + k) != 1) abort();
  return values;
}

int main(void) {
  file = fopen("arrays.txt", "r");
  double *from = calloc(10000, 8), *to = calloc(10000, 8), *dense = calloc(64, 8);
  const int *indices = ints();
  gather(indices, length, from, dense, 200, 5);
  mirrored(indices, length, from, dense, 70, 7);
  indices = ints();
  gather(indices, length, from, dense, 100, 8);
  indices = ints();
  gather(indices, length, from, dense, 80, 2);
  const long *wide = longs();
  scatter(wide, length, to, dense, 150, 3);
  const int *in = ints(), *out = ints();
  gs(in, out, length, from, to, 90);
  const int *outer = ints(), *inner = ints();
  multigather(outer, inner, length, from, dense, 120, 2);
  indices = ints();
  const int of_cyclic = length;
  const long *deltas = longs();
  cyclic(indices, of_cyclic, deltas, length, from, dense, 300);
  const int *starts = ints();
  const int rows = length - 1;
  const int *columns = ints();
  const double *values = calloc(length, 8);
  for (int sweep = 0; sweep < 3; ++sweep) product(starts, columns, values, from, to, rows);
  printf("%g\n", to[3] + dense[2]);
}
