/* libFuzzer target: the bytes are a shard, which goes the whole way that it goes in the program: its metadata
 * is read by HDF5 in a child process, then its rows. Whatever the bytes are, this process sees lines of
 * faults or rows; no crash, hang or memory of HDF5's reaches it. (fuzz_rows.c feeds what comes after HDF5
 * without it, thousands of times a second; this one takes a child or two for each input.) */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "data/child.h"
#include "data/shard_survey.h"
#include "tests/fuzz/guarded.h"
#include "tests/fuzz/rows.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  guarded_start();
  children_prepare(NULL, 0); /* before libFuzzer's threads: one may hold the allocator's lock at a fork */
  return 0;
}

static void look(struct shard_metadata *metadata) {
  const char *line = metadata->fault;
  for (int i = 0; i < metadata->faults; i++, line += strlen(line) + 1)
    if (line[0] == '\0' || strchr(line, '\n')) abort();
  if (metadata->faults > 0) return;
  struct shard *shard = NULL;
  if (shard_open_known(path, &metadata->info, &shard) == STATUS_OK)
    read_rows(shard);
  else
    one_line();
  shard_close(shard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct shard_metadata metadata;
  const char *paths[] = {path};
  snprintf(path, sizeof path, "/dev/shm/convoy-fuzz-%d.h5", (int)getpid());
  int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0 || write(file, data, size) != (ssize_t)size) abort();
  close(file);
  if (shard_survey(paths, 1, &metadata) != STATUS_OK) abort();
  look(&metadata);
  shard_metadata_free(&metadata, 1);
  error_clear();
  unlink(path);
  return 0;
}
