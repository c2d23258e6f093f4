// Functions and variables of which two versions of a program share the state: of the file, of a
// function, of a thread, and of states.cc.
#include <stdio.h>

static int table[1000];
static long total = 5;
static __thread int mine = 3;
int shared;
const char *words = "table total mine";

static long looked_up(const int *x, int n) {
  static int calls, more = 7;
  long sum = 0;
  for (int i = 0; i < n; ++i) sum += table[x[i]];
  calls += 1;
  more += 2;
  total += sum;
  return sum + calls + more;
}

__attribute__((noinline)) long gather(const int *x, int n) {
  mine += 1;
  shared += 1;
  return looked_up(x, n) + mine;
}

__attribute__((noinline)) void fill(int *x, int n) {
  for (int i = 0; i < n; ++i) x[i] = (i * i * 37 + shared) % 997;
}

long (*const ways[])(const int *, int) = {gather, gather};
long other(const int *x, int n);

int main(void) {
  int x[300];
  long sum = 0;
  for (int i = 0; i < 1000; ++i) table[i] = i;
  for (int k = 0; k < 5000; ++k) {
    fill(x, 300);
    sum += gather(x, 300) + other(x, 200 + k % 2) + ways[k % 2](x, 100);
  }
  printf("%ld %ld %d %d %s\n", sum, total, mine, shared, words);
}
