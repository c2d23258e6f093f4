// Counts the accesses of a function that was compiled with -fsanitize=thread, instead of the
// library of that sanitizer: loads, stores and bytes of each array, and which of its bytes were
// read and written by which of at most four workers.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

enum { READ = 1, WRITE = 2, ATOMICALLY = 4, BOTH = READ | WRITE | ATOMICALLY };

static void accessed(const void *at, size_t size, int how) {
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

#define HOOKS(size)                                                             \
  void __tsan_read##size(void *p) { accessed(p, size, READ); }                  \
  void __tsan_write##size(void *p) { accessed(p, size, WRITE); }                \
  void __tsan_unaligned_read##size(void *p) { accessed(p, size, READ); }        \
  void __tsan_unaligned_write##size(void *p) { accessed(p, size, WRITE); }      \
  void __tsan_volatile_read##size(void *p) { accessed(p, size, READ); }         \
  void __tsan_volatile_write##size(void *p) { accessed(p, size, WRITE); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_init(void) {}
void __tsan_func_entry(void *p) { (void)p; }
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **p, void *q) { (void)p, (void)q; }
void __tsan_vptr_read(void **p) { (void)p; }
void __tsan_read_range(void *p, unsigned long n) { accessed(p, n, READ); }
void __tsan_write_range(void *p, unsigned long n) { accessed(p, n, WRITE); }
void __tsan_atomic_thread_fence(int order) { (void)order; }
void __tsan_atomic_signal_fence(int order) { (void)order; }

#define ATOMIC(bits, T, result, name, parameters, how, value) \
  result __tsan_atomic##bits##_##name parameters {            \
    accessed((const void *)p, sizeof(T), how);                \
    return value;                                             \
  }
#define ADD(bits, T, name) \
  ATOMIC(bits, T, T, fetch_##name, (volatile T * p, T v, int o), BOTH, __atomic_fetch_##name(p, v, 5))
#define CHANGE(bits, T, name)                                                               \
  ATOMIC(bits, T, int, compare_exchange_##name, (volatile T * p, T * old, T v, int s, int f), \
         BOTH, __atomic_compare_exchange_n(p, old, v, 0, 5, 5))
#define ATOMICS(bits, T)                                                                        \
  ATOMIC(bits, T, T, load, (const volatile T *p, int o), READ | ATOMICALLY, __atomic_load_n(p, 5)) \
  ATOMIC(bits, T, void, store, (volatile T * p, T v, int o), WRITE | ATOMICALLY,                \
         __atomic_store_n(p, v, 5))                                                             \
  ATOMIC(bits, T, T, exchange, (volatile T * p, T v, int o), BOTH, __atomic_exchange_n(p, v, 5)) \
  ATOMIC(bits, T, T, compare_exchange_val, (volatile T * p, T old, T v, int s, int f), BOTH,    \
         (__atomic_compare_exchange_n(p, &old, v, 0, 5, 5), old))                               \
  CHANGE(bits, T, strong) CHANGE(bits, T, weak)                                                 \
  ADD(bits, T, add) ADD(bits, T, sub) ADD(bits, T, and) ADD(bits, T, or) ADD(bits, T, xor)      \
  ADD(bits, T, nand)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

// The linker replaces calls of these functions in the user's object.
void *__real_memcpy(void *, const void *, size_t);
void *__real_memmove(void *, const void *, size_t);
void *__real_memset(void *, int, size_t);
void *__wrap_memcpy(void *to, const void *from, size_t n) {
  accessed(from, n, READ);
  accessed(to, n, WRITE);
  return __real_memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n) {
  accessed(from, n, READ);
  accessed(to, n, WRITE);
  return __real_memmove(to, from, n);
}
void *__wrap_memset(void *to, int value, size_t n) {
  accessed(to, n, WRITE);
  return __real_memset(to, value, n);
}
