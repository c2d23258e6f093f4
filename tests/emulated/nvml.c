/* A replacement of NVML for tests. It writes the limits of the clock to the file that the
   environment variable MEMKERN_FAKE_NVML names, and refuses them if the file can't be written. */
#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS = 0, NOT_FOUND = 6, NO_PERMISSION = 4 };

int memkern_fake = 1;

static int write_limits(const char* text) {
  const char* path = getenv("MEMKERN_FAKE_NVML");
  FILE* file = path == NULL ? NULL : fopen(path, "w");
  if (file == NULL) return NO_PERMISSION;
  fputs(text, file);
  fclose(file);
  return SUCCESS;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char* nvmlErrorString(int code) {
  return code == NO_PERMISSION ? "Insufficient Permissions" : "Not Found";
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  *device = (void*)1;
  return bus[0] == '0' ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceSetGpuLockedClocks(void* device, unsigned least, unsigned most) {
  char text[32];
  if (device == NULL) return NOT_FOUND;
  snprintf(text, sizeof text, "%u,%u", least, most);
  return write_limits(text);
}
int nvmlDeviceResetGpuLockedClocks(void* device) {
  return device == NULL ? NOT_FOUND : write_limits("none");
}
