// Two threads add atomically to a word of both and to words of their own, add atomically by index,
// load structures by index, and copy structures one after the other.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 2, ADDITIONS = 500, BINS = 128, ITEMS = 300 };

typedef struct {
  double values[8];
} Item;

// Clang calls this one instead of memcpy from release 16 on.
void *__tsan_memcpy(void *to, const void *from, size_t size);

__attribute__((noinline)) void words(long *shared, long *own) {
  for (int k = 0; k < ADDITIONS; ++k) {
#pragma omp atomic
    shared[0] += 1;
#pragma omp atomic
    own[0] += 1;
  }
}

__attribute__((noinline)) void bins(const int *indices, long *counts) {
  for (int k = 0; k < ITEMS; ++k) {
#pragma omp atomic
    counts[indices[k]] += 1;
  }
}

__attribute__((noinline)) void items(const int *indices, const Item *from, Item *to) {
  for (int k = 0; k < ITEMS; ++k) to[k % 4] = from[indices[k]];
}

__attribute__((noinline)) void copies(const Item *from, Item *to, size_t size) {
  for (int k = 0; k < BINS; ++k) {
    memcpy(to + k, from + BINS - 1 - k, size);
    memmove(to + k, from + k, size);
    __tsan_memcpy(to + k, from + k, size);
  }
}

static void *allocated(size_t items, size_t size) {
  void *memory = aligned_alloc(64, items * size);
  return memset(memory, 0, items * size);
}

int main(int argc, char **argv) {
  (void)argv;
  long *shared = allocated(8, 8), *own = allocated(8 * THREADS, 8), *counts = allocated(BINS, 8);
  int *indices = calloc(ITEMS, sizeof *indices);
  Item *from = allocated(BINS, sizeof *from), *to = allocated(BINS * THREADS, sizeof *to);
  for (int k = 0; k < ITEMS; ++k) indices[k] = k * k * 37 % 127;
#pragma omp parallel num_threads(THREADS)
  {
    const int thread = omp_get_thread_num();
    words(shared, own + 8 * thread);
    for (int sweep = 0; sweep < 2; ++sweep) {
      bins(indices, counts);
      items(indices, from, to + BINS * thread);
    }
    copies(from, to + BINS * thread, argc * sizeof *from);
  }
  printf("%ld %g\n", shared[0] + own[0] + counts[0], to[0].values[0]);
}
