// A thread that goes on after the return.
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>
static double *to;
static void *later(void *none) {
  usleep(20000);
  to[0] = to[0];
  return none;
}
void f(double *a, const double *b, const double *c, int64_t begin, int64_t end, double s) {
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + s * c[i];
  pthread_t thread;
  to = a + begin;
  if (pthread_create(&thread, 0, later, 0) == 0) pthread_detach(thread);
}
