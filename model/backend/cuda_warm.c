/* What a start needs and takes its time, done by two threads while the main one reads the data: the device's
 * context, and cuDNN's libraries. Keeps nothing but what the process then has: cuda_open does all of it
 * again, quickly, and tells what is wrong. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/backend/cuda_backend.h"
#include "model/backend/devices.h"
#include "model/base/thread.h"

/* cuDNN loads these when the first plan is made: a tenth of a gigabyte of code in places all over them. From
 * a disk that is slow in small pieces that takes seconds, while it is asked for the whole of them at once. */
static const char *const part[] = {"engines_precompiled", "heuristic", "engines_runtime_compiled"};
enum { PARTS = sizeof part / sizeof *part, AHEAD_BYTES = 2 << 20 /* the kernel limits one request */ };

/* Where the linker found cuDNN, or "": then a bare name is searched for. */
static void cudnn_folder(char folder[PATH_MAX]) {
  Dl_info info = {.dli_fname = NULL};
  void *known = dlsym(RTLD_DEFAULT, "cudnnGetVersion");
  folder[0] = '\0';
  if (!known || !dladdr(known, &info) || !info.dli_fname) return;
  snprintf(folder, PATH_MAX, "%s", info.dli_fname);
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[1] = '\0';
  else
    folder[0] = '\0';
}

static void read_ahead(const char *path) {
  struct stat facts;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  if (fstat(file, &facts) == 0)
    for (off_t at = 0; at < facts.st_size; at += AHEAD_BYTES)
      (void)posix_fadvise(file, at, AHEAD_BYTES, POSIX_FADV_WILLNEED);
  close(file);
}

static void *load_libraries(void *unused) {
  char folder[PATH_MAX], path[PARTS][PATH_MAX + 64];
  (void)unused;
  if (!cuda_device_visible()) return NULL; /* as the other thread asks: the driver is loaded once */
  cudnn_folder(folder);
  for (int i = 0; i < PARTS; i++) {
    snprintf(path[i], sizeof path[i], "%slibcudnn_%s.so.%d", folder, part[i], CUDNN_MAJOR);
    read_ahead(path[i]);
  }
  for (int i = 0; i < PARTS; i++) (void)dlopen(path[i], RTLD_LAZY | RTLD_LOCAL); /* and never closed */
  return NULL;
}

static void *open_device(void *argument) {
  const struct backend_warming *warming = argument;
  cudnnHandle_t cudnn;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) return NULL;
  if (count > 1 && warming->local_rank >= count) return NULL;
  if (cudaSetDevice(count == 1 ? 0 : warming->local_rank) != cudaSuccess) return NULL;
  if (cudaFree(NULL) == cudaSuccess && cudnnCreate(&cudnn) == CUDNN_STATUS_SUCCESS) cudnnDestroy(cudnn);
  cuda_usage_warm();
  return NULL;
}

void cuda_warm_begin(struct backend_warming *warming) {
  warming->device.runs = thread_start(&warming->device.thread, open_device, warming) == 0;
  warming->libraries.runs = thread_start(&warming->libraries.thread, load_libraries, NULL) == 0;
}
