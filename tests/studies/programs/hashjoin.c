// Stands for joins of databases: builds a hash table with linear probing from the keys and values
// of one relation, and looks up the keys of another one in it.
// Indirect are all loads and stores of the table: its keys (slot) and its values (value).
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t place(uint64_t key) { return (key * 0x9e3779b97f4a7c15u) >> 32; }

// A slot has a key, or is 0. The number of slots is a power of two, and mask is 1 less.
__attribute__((noinline)) void kernel(uint64_t mask, uint64_t *slot, double *value, long keys,
                                      const uint64_t *key, const double *of_key,
                                      const uint64_t *probe, double *found) {
  for (long i = 0; i < keys; ++i) {
    const uint64_t wanted = key[i];
    uint64_t k = place(wanted) & mask;
    while (slot[k] != 0) k = (k + 1) & mask;
    slot[k] = wanted;
    value[k] = of_key[i];
  }
  for (long i = 0; i < 2 * keys; ++i) {
    const uint64_t wanted = probe[i];
    uint64_t k = place(wanted) & mask, at;
    while ((at = slot[k]) != 0 && at != wanted) k = (k + 1) & mask;
    found[i] = at ? value[k] : 0;
  }
}

// Loads of slots and values by the kernel.
__attribute__((noinline)) long count(uint64_t mask, const uint64_t *slot, long keys,
                                     const uint64_t *probe) {
  long loads = 0;
  // A key was inserted after loads of all slots from its place to its slot.
  for (uint64_t k = 0; k <= mask; ++k) {
    if (slot[k]) loads += 1 + (long)((k - place(slot[k])) & mask);
  }
  for (long i = 0; i < 2 * keys; ++i) {
    uint64_t k = place(probe[i]) & mask;
    for (; slot[k] != 0 && slot[k] != probe[i]; k = (k + 1) & mask) ++loads;
    loads += slot[k] ? 2 : 1;
  }
  return loads;
}

// Different numbers give different results; only 0 gives 0.
static uint64_t mixed(uint64_t z) {
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
  const long keys = argc > 1 ? atol(argv[1]) : 350000;  // of the table; probes are twice as many
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  uint64_t slots = 2;
  while (3 * slots < 4 * (uint64_t)keys) slots *= 2;
  uint64_t *slot = calloc(slots, sizeof *slot), *key = calloc(keys, sizeof *key);
  uint64_t *probe = calloc(2 * keys, sizeof *probe);
  double *value = calloc(slots, sizeof *value), *of_key = calloc(keys, sizeof *of_key);
  double *found = calloc(2 * keys, sizeof *found);
  for (long i = 0; i < keys; ++i) key[i] = mixed(i + 1), of_key[i] = i + 1;
  // About half of the probes find their key.
  for (long i = 0; i < 2 * keys; ++i) probe[i] = mixed(1 + mixed(keys + i) % (2 * keys));
  double seconds = 1e30, check = 0;
  for (int call = 0; call < calls; ++call) {
    for (uint64_t k = 0; k < slots; ++k) slot[k] = 0;
    const double begin = now();
    kernel(slots - 1, slot, value, keys, key, of_key, probe, found);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  for (long i = 0; i < 2 * keys; ++i) check += found[i];
  // Besides its loads, each key is stored with its value. Others: keys, their values, and results.
  const long indirect = calls * (count(slots - 1, slot, keys, probe) + 2 * keys);
  printf(
      "{\"program\": \"hashjoin\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      indirect * 8, indirect + calls * 6 * keys, seconds, check);
}
