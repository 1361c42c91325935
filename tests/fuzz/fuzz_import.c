/* libFuzzer target: the first byte says whether the rest is an image or an archive to be imported. Whatever
 * it is, it is refused, or becomes an image or a folder of shards. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/image_decode.h"
#include "data/import.h"
#include "model/base/log.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  log_open(0, "", true);
  snprintf(folder, sizeof folder, "/dev/shm/convoy-fuzz-%d", (int)getpid());
  return 0;
}

static void one_line(void) {
  if (error_message()[0] == '\0' || strchr(error_message(), '\n')) abort();
}

/* The shards of a successful import; a failed one leaves no folder. */
static void remove_output(enum status status) {
  DIR *output = opendir(folder);
  if (!output) return;
  if (status != STATUS_OK) abort();
  for (struct dirent *entry; (entry = readdir(output)) != NULL;) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.') unlink(path);
  }
  closedir(output);
  rmdir(folder);
}

static void import_archive(const uint8_t *data, size_t size) {
  int file = memfd_create("archive", MFD_CLOEXEC);
  char path[64];
  if (file < 0 || write(file, data, size) != (ssize_t)size) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  struct import_options options = {.from = path, .out = folder, .train_shards = 2, .test_shards = 1};
  enum status status = import_run(&options);
  if (status != STATUS_OK) one_line();
  remove_output(status);
  close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  if (data[0] == 'I') {
    struct image image;
    if (image_decode("image", data + 1, size - 1, &image) == STATUS_OK)
      free(image.pixels);
    else
      one_line();
  } else {
    import_archive(data + 1, size - 1);
  }
  error_clear();
  return 0;
}
