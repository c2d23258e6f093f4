// Writes how often functions were called and how long they took, of a program whose sources were
// compiled with -finstrument-functions: a line with address, calls, and nanoseconds of all calls and
// of the first one of each function, after lines of loaded files as in a trace. The program may also
// mark a part by memkern_begin(name) and memkern_end(name), which has its name instead of an address.
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loaded.h"

enum { FUNCTIONS = 4096, DEEPEST = 256 };

typedef struct {
  void *function;
  int64_t calls, total, first;
  int is_mark;
} Times;

typedef struct Thread {
  struct Thread *next;
  Times times[FUNCTIONS];
  int64_t began[DEEPEST];
  int depth;
} Thread;

static Thread *threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread Thread *own;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void enter(void) {
  if (!own && (own = calloc(1, sizeof *own))) {
    pthread_mutex_lock(&lock);
    own->next = threads;
    threads = own;
    pthread_mutex_unlock(&lock);
  }
  if (own && own->depth++ < DEEPEST) own->began[own->depth - 1] = now();
}

static void leave(void *function, int is_mark) {
  const int64_t end = now();
  if (!own || own->depth == 0 || own->depth-- > DEEPEST) return;
  const int64_t took = end - own->began[own->depth];
  size_t k = (size_t)function / 16 % FUNCTIONS;
  for (int tried = 0; tried < FUNCTIONS; ++tried, k = (k + 1) % FUNCTIONS) {
    Times *t = own->times + k;
    if (t->function && t->function != function) continue;
    if (!t->function) t->first = took;
    t->function = function;
    t->is_mark = is_mark;
    t->calls += 1;
    t->total += took;
    return;
  }
}

void __cyg_profile_func_enter(void *function, void *site) { (void)function, (void)site, enter(); }
void __cyg_profile_func_exit(void *function, void *site) { (void)site, leave(function, 0); }
void memkern_begin(const char *name) { (void)name, enter(); }
void memkern_end(const char *name) { leave((void *)name, 1); }

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("MEMKERN_TIMES");
  if (!path || !threads) return;
  char name[4096];
  snprintf(name, sizeof name, "%s.%ld", path, (long)getpid());
  FILE *file = fopen(name, "w");
  char *text = calloc(1, LOADED_B);
  if (!file || !text) return;
  dl_iterate_phdr(loaded, text);
  fprintf(file, "memkern times 1\n%s\n", text);
  for (Thread *t = threads; t; t = t->next) {
    for (int k = 0; k < FUNCTIONS; ++k) {
      const Times *one = t->times + k;
      if (!one->function) continue;
      fprintf(file, one->is_mark ? "@%s" : "%p", (const char *)one->function);
      fprintf(file, " %ld %ld %ld\n", (long)one->calls, (long)one->total, (long)one->first);
    }
  }
  fclose(file);
}
