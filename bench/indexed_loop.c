// Plain OpenMP loops over one's own indices, for beside_loop.py:
//
//     indexed_loop FILE ELEMENTS SECONDS
//
// FILE holds int32 indices below ELEMENTS. For y[i] = x[index[i]] and x[index[i]] = y[i] it prints
// the name, and the shortest and the median time of a loop in seconds.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_B = 1 << 21, MOST = 1 << 20 };

static void* allocated(size_t bytes) {
  bytes = (bytes + HUGE_B - 1) / HUGE_B * HUGE_B;
  void* memory = aligned_alloc(HUGE_B, bytes);
  if (memory == NULL) exit(1);
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

static void gather(double* restrict y, const double* restrict x, const int32_t* restrict index,
                   long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) y[i] = x[index[i]];
}

static void scatter(double* restrict y, double* restrict x, const int32_t* restrict index, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) x[index[i]] = y[i];
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  FILE* file = fopen(argv[1], "rb");
  const long elements = atol(argv[2]);
  const double seconds = atof(argv[3]);
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) return 1;
  const long n = ftell(file) / (long)sizeof(int32_t);
  rewind(file);
  int32_t* read = malloc((size_t)n * sizeof *read);
  if (fread(read, sizeof *read, (size_t)n, file) != (size_t)n) return 1;
  int32_t* index = allocated((size_t)n * sizeof *index);
  double* x = allocated((size_t)elements * sizeof *x);
  double* y = allocated((size_t)n * sizeof *y);
  static double times[MOST];
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (long i = 0; i < n; ++i) index[i] = read[i], y[i] = (double)i;
#pragma omp for schedule(static)
    for (long i = 0; i < elements; ++i) x[i] = (double)i;
  }
  for (int scatters = 0; scatters < 2; ++scatters) {
    int count = 0;
    const double end = omp_get_wtime() + seconds / 2;
    while (count < 5 || (omp_get_wtime() < end && count < MOST)) {
      const double begin = omp_get_wtime();
      if (scatters) {
        scatter(y, x, index, n);
      } else {
        gather(y, x, index, n);
      }
      times[count++] = omp_get_wtime() - begin;
    }
    qsort(times, (size_t)count, sizeof *times, ascending);
    printf("%s %.9g %.9g\n", scatters ? "scatter" : "gather", times[0], times[count / 2]);
  }
  return 0;
}
