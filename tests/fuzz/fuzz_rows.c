/* libFuzzer target: the bytes are what HDF5 says of a shard (struct shard_info) and then the file. Everything
 * that the program does with a shard after its metadata has been read: the check of the metadata, the rows by
 * their place, their digest. In this process, without HDF5. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/shard_survey.h"
#include "tests/fuzz/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct shard_info info;
  if (size < sizeof info) return 0;
  memcpy(&info, data, sizeof info);
  info.contiguous = 1;                             /* others are read by HDF5: fuzz_shard.c */
  info.file_bytes = (int64_t)(size - sizeof info); /* another size is refused at once */
  int file = memfd_create("shard", MFD_CLOEXEC);
  char path[64];
  if (file < 0 || write(file, data + sizeof info, size - sizeof info) != (ssize_t)(size - sizeof info))
    abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  struct shard *shard = NULL;
  if (shard_info_check(path, &info) != STATUS_OK)
    one_line();
  else if (shard_open_known(path, &info, &shard) != STATUS_OK)
    one_line();
  else
    read_rows(shard);
  shard_close(shard);
  close(file);
  return 0;
}
