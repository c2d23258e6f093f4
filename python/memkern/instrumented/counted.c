// Counts the accesses of a function that was compiled with -fsanitize=thread, instead of the
// library of that sanitizer: loads, stores and bytes of each array, and which of its bytes were
// read and written by which of at most four workers.
#include "hooks.h"

void __tsan_func_entry(void *p) { (void)p; }

typedef struct {
  uintptr_t begin, end;        // of the elements
  uintptr_t first, last;       // of the addresses that are nearest to this array
  unsigned char *state;        // of each byte: workers that read it, and 16 times those that wrote
  int64_t loads, stores, load_B, store_B;
  int64_t outside;             // distance in bytes of the first access outside of the elements
  int32_t was_outside, atomics;
} Array;

static Array *arrays;
static int64_t number;
static unsigned char worker;  // its bit
static int64_t elsewhere;     // accesses that are near no array and not on the stack
static uintptr_t stack;

__attribute__((visibility("default"))) void memkern_count(Array *of, int64_t n) {
  arrays = of;
  number = n;
  elsewhere = 0;
}
__attribute__((visibility("default"))) void memkern_worker(int w) {
  worker = (unsigned char)(1 << w);
  stack = (uintptr_t)__builtin_frame_address(0);
}
__attribute__((visibility("default"))) int64_t memkern_elsewhere(void) { return elsewhere; }

static void accessed(const void *at, size_t size, int how, const void *caller) {
  (void)caller;
  const uintptr_t begin = (uintptr_t)at;
  for (int64_t k = 0; k < number; ++k) {
    Array *a = arrays + k;
    if (begin < a->first || begin >= a->last) continue;
    if (how & READ) a->loads += 1, a->load_B += (int64_t)size;
    if (how & WRITE) a->stores += 1, a->store_B += (int64_t)size;
    if (how & ATOMICALLY) a->atomics = 1;
    if (begin < a->begin || begin + size > a->end) {
      if (!a->was_outside) a->outside = (int64_t)(begin - a->begin);
      a->was_outside = 1;
      return;
    }
    const unsigned char bits = (how & READ ? worker : 0) | (how & WRITE ? worker << 4 : 0);
    for (size_t b = 0; b < size; ++b) a->state[begin - a->begin + b] |= bits;
    return;
  }
  // Variables of the function itself are within a few megabytes of this stack frame.
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (begin + (1 << 16) < here || begin > stack + (1 << 23)) elsewhere += 1;
}
