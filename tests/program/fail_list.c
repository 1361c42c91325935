/* Preloaded into a run, makes every look at what is in the folder FAIL_FOLDER fail, as a file server that is
 * gone does. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dirent *readdir(DIR *folder) {
  const char *wanted = getenv("FAIL_FOLDER");
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", dirfd(folder));
  ssize_t length = wanted ? readlink(name, path, sizeof path - 1) : -1;
  if (length > 0 && (size_t)length == strlen(wanted) && memcmp(path, wanted, (size_t)length) == 0) {
    errno = EIO;
    return NULL;
  }
  struct dirent *(*real)(DIR *);
  void *found = dlsym(RTLD_NEXT, "readdir");
  memcpy(&real, &found, sizeof real);
  return real(folder);
}
