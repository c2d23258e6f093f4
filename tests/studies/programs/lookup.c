// Stands for Monte Carlo transport of neutrons (XSBench): the energy of a particle is searched in a
// sorted grid, and a row of cross sections is interpolated between the points around it.
// Indirect are the loads of grid and of section. The first load of a search always has the same
// address; it is counted as the other ones.
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SECTIONS = 5 };  // of a point of the grid

__attribute__((noinline)) void kernel(int points, const double *grid, const double *section,
                                      int particles, const double *energy, double *sum) {
  for (int p = 0; p < particles; ++p) {
    const double wanted = energy[p];
    int low = 0;
    // The interval is one of the n that begin at low.
    for (int n = points - 1; n > 1; n -= n / 2) {
      if (grid[low + n / 2] <= wanted) low += n / 2;
    }
    const double begin = grid[low], end = grid[low + 1];
    const double part = (wanted - begin) / (end - begin);
    const double *row = section + (long)low * SECTIONS;
    double total = 0;
    for (int s = 0; s < SECTIONS; ++s) total += row[s] + part * (row[s + SECTIONS] - row[s]);
    sum[p] = total;
  }
}

static uint64_t state = 1;
static double uniform(void) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)(z >> 11) * 0x1p-53;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const int points = argc > 1 ? atoi(argv[1]) : 400000;  // of the grid, at least 2
  const int calls = argc > 2 ? atoi(argv[2]) : 12;
  const int particles = points / 5;
  double *grid = calloc(points, sizeof *grid);
  double *section = calloc((long)points * SECTIONS, sizeof *section);
  double *energy = calloc(particles, sizeof *energy), *sum = calloc(particles, sizeof *sum);
  for (int i = 0; i < points; ++i) {
    grid[i] = i + 0.9 * uniform();
    for (int s = 0; s < SECTIONS; ++s) section[(long)i * SECTIONS + s] = (s + 1) * grid[i];
  }
  for (int p = 0; p < particles; ++p) energy[p] = uniform() * (points - 1);
  double seconds = 1e30, check = 0;
  for (int call = 0; call < calls; ++call) {
    const double begin = now();
    kernel(points, grid, section, particles, energy, sum);
    const double taken = now() - begin;
    if (taken < seconds) seconds = taken;
  }
  // Sections are linear in energy: the sum is 15 times the energy.
  for (int p = 0; p < particles; ++p) check += sum[p] / (15 * energy[p]);
  long loads = 2 + 2 * SECTIONS;
  for (int n = points - 1; n > 1; n -= n / 2) ++loads;
  printf(
      "{\"program\": \"lookup\", \"indirect_B\": %ld, \"accesses\": %ld, \"seconds\": %.3e, "
      "\"check\": %.12g}\n",
      calls * particles * loads * 8, calls * particles * (loads + 2), seconds, check);
}
