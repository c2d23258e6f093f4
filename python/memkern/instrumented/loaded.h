// The files that a program has loaded.
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOADED_B = (1 << 16) - 64 };

// Adds a line to a text of LOADED_B bytes: first address, length of code and data, and path.
static int loaded(struct dl_phdr_info *info, size_t size, void *text) {
  (void)size;
  char path[4096];
  ElfW(Addr) end = 0;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const ElfW(Phdr) *p = info->dlpi_phdr + k;
    if (p->p_type == PT_LOAD && p->p_vaddr + p->p_memsz > end) end = p->p_vaddr + p->p_memsz;
  }
  const char *name = info->dlpi_name;
  if (!*name) {
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    name = path;
  }
  const size_t used = strlen(text);
  snprintf((char *)text + used, LOADED_B - used, "%lx %lx %s\n", (long)info->dlpi_addr, (long)end, name);
  return 0;
}
