// The functions that code calls which is compiled with -fsanitize=thread, and replacements of memcpy,
// memmove and memset for linking with --wrap. All call `accessed`, which the including file defines:
//   static void accessed(const void *at, size_t size, int how, const void *caller);
#include <stddef.h>
#include <stdint.h>

enum { READ = 1, WRITE = 2, ATOMICALLY = 4, BOTH = READ | WRITE | ATOMICALLY };

static void accessed(const void *at, size_t size, int how, const void *caller);
#define ACCESSED(at, size, how) accessed(at, size, how, __builtin_return_address(0))

#define HOOKS(size)                                                             \
  void __tsan_read##size(void *p) { ACCESSED(p, size, READ); }                  \
  void __tsan_write##size(void *p) { ACCESSED(p, size, WRITE); }                \
  void __tsan_unaligned_read##size(void *p) { ACCESSED(p, size, READ); }        \
  void __tsan_unaligned_write##size(void *p) { ACCESSED(p, size, WRITE); }      \
  void __tsan_volatile_read##size(void *p) { ACCESSED(p, size, READ); }         \
  void __tsan_volatile_write##size(void *p) { ACCESSED(p, size, WRITE); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_init(void) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **p, void *q) { (void)p, (void)q; }
void __tsan_vptr_read(void **p) { (void)p; }
void __tsan_read_range(void *p, unsigned long n) { ACCESSED(p, n, READ); }
void __tsan_write_range(void *p, unsigned long n) { ACCESSED(p, n, WRITE); }
void __tsan_atomic_thread_fence(int order) { (void)order; }
void __tsan_atomic_signal_fence(int order) { (void)order; }

#define ATOMIC(bits, T, result, name, parameters, how, value) \
  result __tsan_atomic##bits##_##name parameters {            \
    ACCESSED((const void *)p, sizeof(T), how);                \
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

void *__real_memcpy(void *, const void *, size_t);
void *__real_memmove(void *, const void *, size_t);
void *__real_memset(void *, int, size_t);
// The load and the store have addresses of their own in the code, like two instructions.
static void copied(void *to, const void *from, size_t n, const char *caller) {
  accessed(from, n, READ, caller);
  accessed(to, n, WRITE, caller - 1);
}
// Clang calls these by names of its own from release 16 on.
#define COPY(name, real)                                    \
  void *name(void *to, const void *from, size_t n) {        \
    copied(to, from, n, __builtin_return_address(0));       \
    return real(to, from, n);                               \
  }
#define FILL(name)                                          \
  void *name(void *to, int value, size_t n) {               \
    ACCESSED(to, n, WRITE);                                 \
    return __real_memset(to, value, n);                     \
  }
COPY(__wrap_memcpy, __real_memcpy)
COPY(__tsan_memcpy, __real_memcpy)
COPY(__wrap_memmove, __real_memmove)
COPY(__tsan_memmove, __real_memmove)
FILL(__wrap_memset)
FILL(__tsan_memset)
