// Stands for particle-in-cell codes of plasma physics: a particle in a plane moves in the field
// that is interpolated from the corners of its cell, and deposits its charge there.
// Indirect are the loads of ex and ey, and the loads and stores of charge: their addresses come
// from the cell, which is computed from the particle's coordinates.
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Particles that leave on one side come back on the other one.
static float wrapped(float at, float side) {
  if (at < 0) at += side;
  return at >= side ? at - side : at;
}

__attribute__((noinline)) void kernel(long particles, int cells, float *x, float *y, float *vx,
                                      float *vy, const double *ex, const double *ey,
                                      double *charge) {
  const int above = cells + 1;  // distance to the node above
  for (long p = 0; p < particles; ++p) {
    const float px = x[p], py = y[p];
    const int cx = (int)px, cy = (int)py, k = cy * above + cx;
    const double dx = px - (float)cx, dy = py - (float)cy;
    const double a = (1 - dx) * (1 - dy), b = dx * (1 - dy), c = (1 - dx) * dy, d = dx * dy;
    const double fx = a * ex[k] + b * ex[k + 1] + c * ex[k + above] + d * ex[k + above + 1];
    const double fy = a * ey[k] + b * ey[k + 1] + c * ey[k + above] + d * ey[k + above + 1];
    charge[k] += a;
    charge[k + 1] += b;
    charge[k + above] += c;
    charge[k + above + 1] += d;
    const float ux = vx[p] + (float)fx, uy = vy[p] + (float)fy;
    vx[p] = ux;
    vy[p] = uy;
    x[p] = wrapped(px + ux, (float)cells);
    y[p] = wrapped(py + uy, (float)cells);
  }
}

static uint64_t state = 1;
static float uniform(void) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (float)(z >> 40) * 0x1p-24f;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const int cells = argc > 1 ? atoi(argv[1]) : 480;  // of an edge of the square
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  const long particles = 4L * cells * cells, nodes = (cells + 1L) * (cells + 1L);
  float *x = calloc(particles, sizeof *x), *y = calloc(particles, sizeof *y);
  float *vx = calloc(particles, sizeof *vx), *vy = calloc(particles, sizeof *vy);
  double *ex = calloc(nodes, sizeof *ex), *ey = calloc(nodes, sizeof *ey);
  double *charge = calloc(nodes, sizeof *charge);
  for (long p = 0; p < particles; ++p) {
    x[p] = wrapped(uniform() * (float)cells, (float)cells);
    y[p] = wrapped(uniform() * (float)cells, (float)cells);
    vx[p] = uniform() - 0.5f;
    vy[p] = uniform() - 0.5f;
  }
  for (long k = 0; k < nodes; ++k) ex[k] = uniform() * 1e-3f, ey[k] = uniform() * 1e-3f;
  double seconds = 1e30, check = 0;
  for (int call = 0; call < calls; ++call) {
    const double begin = now();
    kernel(particles, cells, x, y, vx, vy, ex, ey, charge);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  for (long k = 0; k < nodes; ++k) check += charge[k];  // particles times calls
  // Of a particle: 8 loads of the field, 4 loads and 4 stores of charge; and otherwise 4 loads and
  // 4 stores of the particle itself.
  printf(
      "{\"program\": \"push\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      calls * particles * 16 * 8, calls * particles * (16 + 8), seconds, check);
}
