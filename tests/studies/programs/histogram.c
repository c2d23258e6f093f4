// Stands for histograms and counting sorts: counts how often each value occurs. Each thread has a
// histogram of its own, and the histograms are added at the end.
// Indirect are the load and the store of own[data[i]] += 1.
#define _POSIX_C_SOURCE 199309L
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__attribute__((noinline)) void kernel(long number, const uint32_t *data, long bins, int threads,
                                      uint64_t *of_thread, uint64_t *all) {
#pragma omp parallel num_threads(threads)
  {
    uint64_t *own = of_thread + omp_get_thread_num() * bins;
#pragma omp for schedule(static)
    for (long i = 0; i < number; ++i) own[data[i]] += 1;
#pragma omp for schedule(static)
    for (long b = 0; b < bins; ++b) {
      uint64_t sum = 0;
      for (int t = 0; t < threads; ++t) sum += of_thread[t * bins + b];
      all[b] = sum;
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

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const long number = argc > 1 ? atol(argv[1]) : 6000000;
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  const int threads = omp_get_max_threads();
  const long bins = number / 64 + 1;
  uint32_t *data = calloc(number, sizeof *data);
  uint64_t *of_thread = calloc(threads * bins, sizeof *of_thread), *all = calloc(bins, sizeof *all);
  for (long i = 0; i < number; ++i) data[i] = (uint32_t)(bits() % (uint64_t)bins);
  double seconds = 1e30, check = 0;
  for (int call = 0; call < calls; ++call) {
    for (long k = 0; k < threads * bins; ++k) of_thread[k] = 0;
    const double begin = now();
    kernel(number, data, bins, threads, of_thread, all);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  for (long b = 0; b < bins; ++b) check += (double)(all[b] * (uint64_t)(b % 1000));
  printf(
      "{\"program\": \"histogram\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      calls * number * 16, calls * (3 * number + (threads + 1) * bins), seconds, check);
}
