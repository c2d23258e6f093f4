// Writes the accesses of a program that was compiled with -fsanitize=thread to a file, instead of
// the library of that sanitizer. cpp/core/trace.hpp describes the file and reads it.
//
// Each thread fills parts of the file, which are mapped into memory: if the program is killed, the
// system still writes them. Bytes of an event are stored from the last to the first, so that an
// incomplete event begins with a zero, as the unused rest of a part does.
#define _GNU_SOURCE
#include "hooks.h"
#include "loaded.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  HEAD_B = 1 << 16,
  PART_B = 1 << 18,
  PART_HEAD_B = 16,   // number of the thread; accesses that it left out since its last event
  WINDOW = 1 << 20,   // accesses that are recorded, or left out, together
  SITES = 1 << 16,    // of a thread
  VALUES = 1 << 12,   // of a site in a window
  LONGEST_B = 64,     // of an event
  RUN = 0x7f,
};
enum { EVENT = 0x80, SITE = 1, ADDRESS = 2, VALUE = 4, DEFINED = 8, LENGTH = 16, GAP = 32 };

typedef struct {
  uintptr_t caller;
  uintptr_t at;      // of the last access
  intptr_t step;     // to it
  uint32_t next;     // site of the access after it
  uint16_t values;   // that may still be recorded in this window
  uint8_t size;      // of the first access
} Site;

typedef struct {
  Site site[SITES];
  uint32_t slot[2 * SITES];  // number of a site by its caller, plus 1
  uint32_t sites, last;
  unsigned char *begin, *at, *end;  // of the part
  unsigned char *run;               // its last byte if that counts predicted accesses
  uint64_t number;                  // of the thread
  int64_t left;                     // accesses of the window
  uint64_t windows, skipped;
  int recorded;                     // this window is
} Thread;

static int file = -1;
static uint64_t most_parts;
static atomic_uint_fast64_t parts, threads;
#define OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
OF_THREAD Thread *own;
OF_THREAD int inside;

// Calls of functions until one is traced, in programs with two versions of their code: this one jumps
// to the other version when it becomes negative. The mean of the numbers is `calls`; the first one is
// not 0, so that main is not always traced.
__thread __attribute__((tls_model("initial-exec"))) int64_t memkern_left = 15;
OF_THREAD uint64_t drawn;
static uint64_t calls = 1;

void __tsan_func_entry(void *p) {
  (void)p;
  if (memkern_left >= 0) return;
  drawn = drawn * 6364136223846793005u + 1442695040888963407u;
  memkern_left = (int64_t)((drawn >> 33) % (2 * calls - 1));
}

// Continues in a new part, if the file may have one.
static void part(Thread *t) {
  t->recorded = 0;
  if (atomic_load(&parts) >= most_parts) return;
  const uint64_t k = atomic_fetch_add(&parts, 1);
  const off_t at = (off_t)(HEAD_B + k * PART_B);
  if (k >= most_parts || posix_fallocate(file, at, PART_B)) return;
  void *memory = mmap(NULL, PART_B, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
  if (memory == MAP_FAILED) return;
  if (t->begin) munmap(t->begin, PART_B);
  t->begin = memory;
  t->at = t->begin + PART_HEAD_B;
  t->end = t->begin + PART_B - LONGEST_B;
  t->run = NULL;
  t->recorded = 1;
  __builtin_memcpy(t->begin, &t->number, 8);
}

// Half of the file is for all windows, a quarter for every second of the rest, and so on.
static void window(Thread *t) {
  uint64_t every = 1;
  const uint64_t used = atomic_load(&parts);
  for (uint64_t rest = most_parts; rest > 1 && used > most_parts - rest / 2; rest /= 2) every *= 2;
  t->left = WINDOW;
  t->recorded = t->windows++ % every == 0;
  for (uint32_t k = 0; k < t->sites; ++k) t->site[k].values = VALUES;
}

static Thread *start(void) {
  Thread *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (t == MAP_FAILED) return NULL;
  t->number = atomic_fetch_add(&threads, 1);
  return own = t;
}

static uint32_t site_of(Thread *t, uintptr_t caller, size_t size, int *defined) {
  uint32_t slot = (uint32_t)((caller * 0x9e3779b97f4a7c15u) >> 47);
  for (; t->slot[slot]; slot = (slot + 1) % (2 * SITES)) {
    if (t->site[t->slot[slot] - 1].caller == caller) return t->slot[slot] - 1;
  }
  if (t->sites == SITES) return SITES;
  const uint32_t k = t->sites++;
  t->slot[slot] = k + 1;
  t->site[k] = (Site){caller, 0, 0, k, VALUES, (uint8_t)(size <= 16 ? size : 0)};
  *defined = 1;
  return k;
}

static unsigned char *number(unsigned char *p, uint64_t n) {
  for (; n > 0x7f; n >>= 7) *p++ = (unsigned char)(n | 0x80);
  *p++ = (unsigned char)n;
  return p;
}
static uint64_t zigzag(int64_t n) { return ((uint64_t)n << 1) ^ (uint64_t)(n >> 63); }

// Counts an access that is left out, also in the part, which tells how many follow its last event.
static void skip(Thread *t) {
  t->skipped++;
  if (t->begin) __builtin_memcpy(t->begin + 8, &t->skipped, 8);
}

static void record(Thread *t, uintptr_t at, size_t size, int how, uintptr_t caller) {
  int defined = 0;
  uint32_t k = t->sites ? t->site[t->last].next : 0;
  const int as_before = t->sites && t->site[k].caller == caller;
  if (!as_before) k = site_of(t, caller, size, &defined);
  if (k == SITES) {
    skip(t);
    return;
  }
  Site *s = t->site + k;
  const uintptr_t predicted = s->at + (uintptr_t)s->step;
  uint64_t value = 0;
  int flags = (as_before ? 0 : SITE) | (at == predicted ? 0 : ADDRESS) | (defined ? DEFINED : 0) |
              (size == s->size ? 0 : LENGTH) | (t->skipped ? GAP : 0);
  if (s->values && how == READ && size <= 8) {
    s->values--;
    __builtin_memcpy(&value, (const void *)at, size);
    if (value >> 48 == 0) flags |= VALUE;
  }
  t->site[t->last].next = k;
  t->last = k;
  s->step = (intptr_t)(at - s->at);
  s->at = at;
  if (t->at >= t->end) {
    part(t);
    if (!t->recorded) {
      skip(t);
      return;
    }
  }
  if (!flags) {
    if (t->run && *t->run < RUN) {
      ++*t->run;
    } else {
      t->run = t->at++;
      *t->run = 1;
    }
    return;
  }
  unsigned char *p = t->at + 1;
  if (flags & GAP) p = number(p, t->skipped);
  if (flags & SITE) p = number(p, k);
  if (flags & DEFINED) p = number(number(p, caller), (uint64_t)(how | s->size << 3));
  if (flags & LENGTH) p = number(p, size);
  if (flags & ADDRESS) p = number(p, zigzag((int64_t)(at - predicted)));
  if (flags & VALUE) p = number(p, value);
  atomic_signal_fence(memory_order_release);
  *t->at = (unsigned char)(EVENT | flags);
  t->at = p;
  t->run = NULL;
  if (flags & GAP) {
    t->skipped = 0;
    __builtin_memcpy(t->begin + 8, &t->skipped, 8);
  }
}

static void accessed(const void *at, size_t size, int how, const void *caller) {
  if (file < 0 || inside) return;
  inside = 1;
  Thread *t = own ? own : start();
  if (t) {
    if (t->left-- == 0) window(t);
    if (t->recorded) {
      record(t, (uintptr_t)at, size, how, (uintptr_t)caller);
    } else {
      skip(t);
    }
  }
  inside = 0;
}

// Marks of the program, for timed.c.
void memkern_begin(const char *name) { (void)name; }
void memkern_end(const char *name) { (void)name; }

static void forked(void) { file = -1; }

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MEMKERN_TRACE"), *most = getenv("MEMKERN_TRACE_MOST_B");
  const char *sampled = getenv("MEMKERN_TRACE_CALLS");
  if (sampled) calls = strtoull(sampled, NULL, 10);
  if (!path) return;
  static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
  char name[4096];
  const char *rank = NULL;
  for (size_t k = 0; k < sizeof ranks / sizeof *ranks && !rank; ++k) rank = getenv(ranks[k]);
  snprintf(name, sizeof name, rank ? "%s.%s" : "%s", path, rank ? rank : "");
  int opened = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (opened < 0) {
    snprintf(name, sizeof name, "%s.%ld", path, (long)getpid());
    opened = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  }
  char *head = opened < 0 ? NULL : calloc(1, HEAD_B);
  if (!head) return;
  memcpy(head, "memkern trace 1\n", 16);
  dl_iterate_phdr(loaded, head + 16);
  if (write(opened, head, HEAD_B) == HEAD_B) {
    most_parts = (most ? strtoull(most, NULL, 10) : (uint64_t)1 << 32) / PART_B;
    pthread_atfork(NULL, NULL, forked);
    file = opened;
  }
  free(head);
}
