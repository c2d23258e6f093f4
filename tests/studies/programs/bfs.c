// Stands for graph analytics: breadth-first search over a random graph in compressed rows.
// Indirect are the loads row[v] and row[v + 1] of a visited vertex v, and the loads and stores
// level[w] of its neighbours w. The loads of lists of neighbours are not counted: the first one of
// a list has an address that comes from row[v], the others follow it.
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Queue has the visited vertices. Returns their number.
__attribute__((noinline)) int kernel(int root, const int *row, const int *neighbour, int *level,
                                     int *queue) {
  int head = 0, tail = 1;
  level[root] = 0;
  queue[0] = root;
  for (int depth = 1; head < tail; ++depth) {
    for (const int last = tail; head < last; ++head) {
      const int v = queue[head];
      const int end = row[v + 1];
      for (int k = row[v]; k < end; ++k) {
        const int w = neighbour[k];
        if (level[w] >= 0) continue;
        level[w] = depth;
        queue[tail++] = w;
      }
    }
  }
  return tail;
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
  const int vertices = argc > 1 ? atoi(argv[1]) : 320000;
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  // A vertex has 4 to 12 edges to random ones.
  int *row = calloc(vertices + 1, sizeof *row);
  int *neighbour = calloc(12L * vertices, sizeof *neighbour);
  int *level = calloc(vertices, sizeof *level), *queue = calloc(vertices, sizeof *queue);
  for (int v = 0, k = 0; v < vertices; ++v) {
    row[v] = k;
    for (int more = 4 + (int)(bits() % 9); more > 0; --more) {
      neighbour[k++] = (int)(bits() % (uint64_t)vertices);
    }
    row[v + 1] = k;
  }
  double seconds = 1e30, check = 0;
  long visited = 0, edges = 0;
  for (int call = 0; call < calls; ++call) {
    for (int v = 0; v < vertices; ++v) level[v] = -1;
    const double begin = now();
    visited = kernel(0, row, neighbour, level, queue);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  for (int v = 0; v < vertices; ++v) {
    if (level[v] < 0) continue;
    check += level[v];
    edges += row[v + 1] - row[v];
  }
  // Two loads of row for each visited vertex, a load of level for each edge, and a store for each
  // visited vertex but the root. Others: neighbours, queue, and the level of the root.
  const long indirect = calls * (2 * visited + edges + visited - 1);
  printf(
      "{\"program\": \"bfs\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      indirect * 4, indirect + calls * (edges + 2 * visited + 1), seconds, check);
}
