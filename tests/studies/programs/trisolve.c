// Stands for solvers that precondition by incomplete factors: solution of L x = b, where L is
// sparse, lower triangular and in compressed rows, and the inverse of its diagonal is an array of
// its own. There are two right-hand sides, one after the other.
// Indirect are the loads x[col[k]].
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIDES = 2, ENTRIES = 8 };  // entries of a row, besides the diagonal

__attribute__((noinline)) void kernel(int rows, const int *row, const int *col, const double *value,
                                      const double *inverse, const double *b, double *x) {
  for (int side = 0; side < SIDES; ++side, b += rows, x += rows) {
    int k = 0;
    for (int i = 0; i < rows; ++i) {
      const int end = row[i + 1];
      double rest = b[i];
      for (; k < end; ++k) rest -= value[k] * x[col[k]];
      x[i] = rest * inverse[i];
    }
  }
}

static uint64_t state = 1;
static uint64_t bits(void) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A row has an entry in each eighth of the columns before its diagonal; the first rows have none.
__attribute__((noinline)) void setup(int rows, int *row, int *col, double *value, double *inverse,
                                     double *b) {
  int k = 0;
  row[0] = 0;
  for (int i = 0; i < rows; ++i) {
    const int part = i / ENTRIES;
    for (int j = 0; j < ENTRIES && part > 0; ++j, ++k) {
      col[k] = j * part + (int)(bits() % (uint64_t)part);
      value[k] = (double)(bits() >> 11) * 0x1p-54;
    }
    row[i + 1] = k;
    inverse[i] = 0.25;
    b[i] = 1 + i % 5;
    b[rows + i] = 1 + i % 3;
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const int rows = argc > 1 ? atoi(argv[1]) : 200000;  // at least 8
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  const long entries = (rows - 8L) * ENTRIES;
  int *row = calloc(rows + 1, sizeof *row), *col = calloc(entries + 1, sizeof *col);
  double *value = calloc(entries + 1, sizeof *value), *inverse = calloc(rows, sizeof *inverse);
  double *b = calloc(SIDES * rows, sizeof *b), *x = calloc(SIDES * rows, sizeof *x);
  setup(rows, row, col, value, inverse, b);
  double seconds = 1e30, check = 0;
  for (int call = 0; call < calls; ++call) {
    const double begin = now();
    kernel(rows, row, col, value, inverse, b, x);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  for (int i = 0; i < SIDES * rows; ++i) check += x[i];
  printf(
      "{\"program\": \"trisolve\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      calls * SIDES * entries * 8, calls * SIDES * (3 * entries + 4L * rows), seconds, check);
}
