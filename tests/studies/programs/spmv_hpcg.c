// Stands for the benchmark HPCG: products of a sparse matrix in compressed rows (27 points of a
// cube) and a vector.
// Indirect are the loads x[col[k]].
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SWEEPS = 4 };  // even, so that x has the last result

__attribute__((noinline)) void kernel(int rows, const int *row, const int *col, const double *value,
                                      double *x, double *y) {
  for (int sweep = 0; sweep < SWEEPS; ++sweep) {
    int k = 0;
    for (int i = 0; i < rows; ++i) {
      const int end = row[i + 1];
      double sum = 0;
      for (; k < end; ++k) sum += value[k] * x[col[k]];
      y[i] = sum;
    }
    double *last = x;
    x = y;
    y = last;
  }
}

// A row has a column for each neighbour of its point, and for the point itself.
__attribute__((noinline)) void setup(int n, int *row, int *col, double *value, double *x) {
  int i = 0, k = 0;
  row[0] = 0;
  for (int iz = 0; iz < n; ++iz)
    for (int iy = 0; iy < n; ++iy)
      for (int ix = 0; ix < n; ++ix) {
        for (int jz = iz - 1; jz <= iz + 1; ++jz)
          for (int jy = iy - 1; jy <= iy + 1; ++jy)
            for (int jx = ix - 1; jx <= ix + 1; ++jx) {
              if (jz < 0 || jz >= n || jy < 0 || jy >= n || jx < 0 || jx >= n) continue;
              col[k] = (jz * n + jy) * n + jx;
              value[k] = col[k] == i ? 26. / 52 : -1. / 52;
              ++k;
            }
        x[i++] = 1 + ix % 3;
        row[i] = k;
      }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 40;  // points of an edge of the cube
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  const long rows = (long)n * n * n, edge = 3L * n - 2, entries = edge * edge * edge;
  int *row = calloc(rows + 1, sizeof *row), *col = calloc(entries, sizeof *col);
  double *value = calloc(entries, sizeof *value);
  double *x = calloc(rows, sizeof *x), *y = calloc(rows, sizeof *y);
  setup(n, row, col, value, x);
  double seconds = 1e30, check = 0;
  for (int call = 0; call < calls; ++call) {
    const double begin = now();
    kernel((int)rows, row, col, value, x, y);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  for (long i = 0; i < rows; ++i) check += x[i] * x[i];
  const long sweeps = (long)calls * SWEEPS;
  printf(
      "{\"program\": \"spmv_hpcg\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      sweeps * entries * 8, sweeps * (3 * entries + 2 * rows), seconds, check);
}
