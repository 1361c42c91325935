/* How fast a folder of shards gets into memory, checked to the last byte, beside a plain read of the same
 * bytes.
 *
 * usage: [mpirun -np N] bench_data DIR [ROUNDS]        prints one line a round and the medians */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/shard_list.h"
#include "model/base/clock.h"
#include "model/base/log.h"

enum { MAX_ROUNDS = 101 };

/* Bytes of a file; -1: it cannot be opened. */
static off_t open_file(const char *directory, const char *name, int *file) {
  char *path = shard_list_path(directory, name);
  *file = path ? open(path, O_RDONLY) : -1;
  free(path);
  return *file < 0 ? -1 : lseek(*file, 0, SEEK_END);
}

/* Reads this rank's part of each file into memory, 1 MiB at a time; without memory, only adds up all ranks'
 * bytes. */
static double read_plainly(const struct world *world, const char *directory, const struct shard_list *list,
                           char *memory) {
  double all = 0;
  for (int split = 0; split < SPLIT_COUNT; split++)
    for (int i = 0; i < list->count[split]; i++) {
      int file;
      off_t bytes = open_file(directory, list->name[split][i], &file);
      off_t first = bytes * world->rank / world->size, last = bytes * (world->rank + 1) / world->size;
      if (bytes < 0) exit(1);
      for (off_t at = first; memory && at < last;) {
        ssize_t got = pread(file, memory, (size_t)(last - at < 1 << 20 ? last - at : 1 << 20), at);
        if (got <= 0) exit(1);
        at += got;
        memory += got;
      }
      all += (double)bytes;
      close(file);
    }
  return all;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static enum status measure(const struct world *world, const char *directory, int rounds) {
  struct shard_list list;
  double plain[MAX_ROUNDS], checked[MAX_ROUNDS], bytes = 0;
  TRY(shard_list_read(directory, &list));
  bytes = read_plainly(world, directory, &list, NULL);
  enum status status = STATUS_OK;
  for (int i = -1; i < rounds; i++) { /* the first round only warms the cache */
    TRY_OUT(world_barrier(world));
    double begin = clock_seconds();
    char *memory =
        malloc((size_t)bytes / (size_t)world->size + 4096); /* new each time, as the data set's is */
    if (!memory) exit(1);
    read_plainly(world, directory, &list, memory);
    TRY_OUT(world_barrier(world));
    double middle = clock_seconds();
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_open(world, directory, 0, &dataset));
    double end = clock_seconds();
    free(memory);
    dataset_close(dataset);
    if (i < 0) continue;
    plain[i] = bytes * 1e-9 / (middle - begin);
    checked[i] = bytes * 1e-9 / (end - middle);
    log_info("plain read %.2f GB/s, opened and checked %.2f GB/s", plain[i], checked[i]);
  }
  qsort(plain, (size_t)rounds, sizeof *plain, compare);
  qsort(checked, (size_t)rounds, sizeof *checked, compare);
  double a = plain[rounds / 2], b = checked[rounds / 2];
  log_info("%d ranks, %.0f MB, medians of %d: plain read %.2f GB/s, opened and checked %.2f GB/s, ratio %.2f",
           world->size, bytes * 1e-6, rounds, a, b, b / a);
out:
  shard_list_free(&list);
  return status;
}

int main(int argc, char **argv) {
  struct world world;
  int rounds = argc > 2 ? atoi(argv[2]) : 9;
  if (argc < 2 || rounds < 1 || rounds > MAX_ROUNDS || world_open(&world) != STATUS_OK) {
    fputs("usage: bench_data DIR [ROUNDS]\n", stderr);
    return 2;
  }
  log_open(world.rank, world.host, false);
  enum status status = measure(&world, argv[1], rounds);
  if (status != STATUS_OK) error_print(stderr);
  world_close(&world);
  return (int)status;
}
