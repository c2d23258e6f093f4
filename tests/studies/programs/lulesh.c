// Stands for LULESH and other codes on meshes of hexahedra: each element gathers the coordinates of
// its 8 corners, and adds forces to them.
// Indirect are the loads of x, y and z, and the loads and stores of fx, fy and fz.
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Threads only gather; the scatter is serial, as elements share nodes.
__attribute__((noinline)) void kernel(long elements, const int *corners, const double *x,
                                      const double *y, const double *z, double *sum_x,
                                      double *sum_y, double *sum_z, double *fx, double *fy,
                                      double *fz) {
#pragma omp parallel for schedule(static)
  for (long e = 0; e < elements; ++e) {
    double sx = 0, sy = 0, sz = 0;
    for (int c = 0; c < 8; ++c) {
      const int node = corners[8 * e + c];
      sx += x[node];
      sy += y[node];
      sz += z[node];
    }
    sum_x[e] = sx;
    sum_y[e] = sy;
    sum_z[e] = sz;
  }
  for (long e = 0; e < elements; ++e) {
    const double sx = sum_x[e] / 8, sy = sum_y[e] / 8, sz = sum_z[e] / 8;
    for (int c = 0; c < 8; ++c) {
      const int node = corners[8 * e + c];
      fx[node] += sx;
      fy[node] += sy;
      fz[node] += sz;
    }
  }
}

__attribute__((noinline)) void setup(int n, int *corners, double *x, double *y, double *z) {
  const int m = n + 1;
  for (int e = 0; e < n * n * n; ++e) {
    const int first = (e / (n * n) * m + e / n % n) * m + e % n;
    for (int c = 0; c < 8; ++c) *corners++ = first + (c / 4 * m + c / 2 % 2) * m + c % 2;
  }
  for (int k = 0; k < m * m * m; ++k) {
    x[k] = (double)(k % m) / n;
    y[k] = (double)(k / m % m) / n;
    z[k] = (double)(k / (m * m)) / n;
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 66;  // elements of an edge of the cube
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  const long elements = (long)n * n * n, nodes = (long)(n + 1) * (n + 1) * (n + 1);
  int *corners = calloc(8 * elements, sizeof *corners);
  double *x = calloc(nodes, sizeof *x), *fx = calloc(nodes, sizeof *fx);
  double *y = calloc(nodes, sizeof *y), *fy = calloc(nodes, sizeof *fy);
  double *z = calloc(nodes, sizeof *z), *fz = calloc(nodes, sizeof *fz);
  double *sum_x = calloc(elements, sizeof *sum_x), *sum_y = calloc(elements, sizeof *sum_y);
  double *sum_z = calloc(elements, sizeof *sum_z);
  setup(n, corners, x, y, z);
  double seconds = 1e30, check = 0;
  for (int call = 0; call < calls; ++call) {
    const double begin = now();
    kernel(elements, corners, x, y, z, sum_x, sum_y, sum_z, fx, fy, fz);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  for (long k = 0; k < nodes; ++k) check += fx[k] + 2 * fy[k] + 3 * fz[k];
  // Of an element: 24 loads of coordinates, and 24 loads and stores of forces; and otherwise 8
  // loads of nodes, 3 stores and 3 loads of sums, and 8 loads of nodes again.
  printf(
      "{\"program\": \"lulesh\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      calls * elements * 72 * 8, calls * elements * (72 + 22), seconds, check);
}
