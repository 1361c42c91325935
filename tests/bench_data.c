/* How fast a folder of shards gets into memory, checked to the last byte, beside a plain read of the same
 * bytes.
 *
 * usage: [mpirun -np N] bench_data DIR [ROUNDS]        prints one line a round and the medians */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data/child.h"
#include "data/dataset.h"
#include "data/shard_list.h"
#include "data/shard_survey.h"
#include "model/base/clock.h"
#include "model/base/log.h"
#include "model/base/sort.h"

enum { MAX_ROUNDS = 101 };

/* Processor time of this process's threads so far. */
static double busy(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

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

struct round {
  double plain, checked, plain_busy,
      checked_busy; /* seconds, of the slowest rank; processor time of all ranks */
};

/* One of each kind, one after the other. */
static enum status measure_round(const struct world *world, const char *directory,
                                 const struct shard_list *list, double bytes, struct round *round) {
  TRY(world_barrier(world));
  double begin = clock_seconds(), begin_busy = busy();
  char *memory = malloc((size_t)bytes / (size_t)world->size + 4096); /* new each time, as the data set's is */
  if (!memory) exit(1);
  read_plainly(world, directory, list, memory);
  double middle_busy = busy();
  TRY(world_barrier(world));
  double middle = clock_seconds();
  free(memory);
  TRY(world_barrier(world));
  double second = clock_seconds(), second_busy = busy();
  struct dataset *dataset = NULL;
  TRY(dataset_open(world, directory, 0, &dataset));
  double end = clock_seconds();
  *round = (struct round){middle - begin, end - second, middle_busy - begin_busy, busy() - second_busy};
  dataset_close(dataset);
  return world_sum_f64(world, &round->plain_busy, 2);
}

/* Least, median and most of `count` values, which are sorted. */
static void spread(double *value, int count, char text[64]) {
  sort_doubles(value, (size_t)count);
  snprintf(text, 64, "%.2f (%.2f..%.2f)", value[count / 2], value[0], value[count - 1]);
}

static enum status measure(const struct world *world, const char *directory, int rounds) {
  struct shard_list list;
  double plain[MAX_ROUNDS], checked[MAX_ROUNDS], ratio[MAX_ROUNDS], cost[MAX_ROUNDS], bytes;
  TRY(shard_list_read(directory, &list));
  bytes = read_plainly(world, directory, &list, NULL);
  enum status status = STATUS_OK;
  for (int i = -1; i < rounds; i++) { /* the first round only warms the cache */
    struct round round;
    TRY_OUT(measure_round(world, directory, &list, bytes, &round));
    if (i < 0) continue;
    plain[i] = bytes * 1e-9 / round.plain;
    checked[i] = bytes * 1e-9 / round.checked;
    ratio[i] = round.plain / round.checked;
    cost[i] = round.plain_busy / round.checked_busy;
    log_info("round %d: plain read %.2f GB/s (%.0f ms of processors), opened and checked %.2f GB/s (%.0f "
             "ms), ratio %.2f",
             i + 1, plain[i], round.plain_busy * 1e3, checked[i], round.checked_busy * 1e3, ratio[i]);
  }
  char text[4][64];
  spread(plain, rounds, text[0]);
  spread(checked, rounds, text[1]);
  spread(ratio, rounds, text[2]);
  spread(cost, rounds, text[3]);
  log_info("%d ranks, %.0f MB, median (least..most) of %d: plain read %s GB/s, opened and checked %s GB/s, "
           "ratio %s, "
           "of processor time %s",
           world->size, bytes * 1e-6, rounds, text[0], text[1], text[2], text[3]);
out:
  shard_list_free(&list);
  return status;
}

/* What start-up pays for reading the metadata: in a child process, on rank 0. */
static enum status measure_survey(const char *directory, int rounds) {
  struct shard_list list;
  double took[MAX_ROUNDS];
  TRY(shard_list_read(directory, &list));
  int total = list.count[SPLIT_TRAIN] + list.count[SPLIT_TEST];
  char **path = calloc((size_t)total + 1, sizeof *path), text[64];
  struct shard_metadata *metadata = calloc((size_t)total + 1, sizeof *metadata);
  enum status status = path && metadata ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for %d shards", total);
  TRY_OUT(status);
  TRY_OUT(shard_list_paths(directory, &list, path));
  for (int i = 0; i < rounds; i++) {
    double begin = clock_seconds();
    TRY_OUT(shard_survey((const char *const *)path, total, metadata));
    took[i] = (clock_seconds() - begin) * 1e3;
    shard_metadata_free(metadata, total);
  }
  spread(took, rounds, text);
  log_info("metadata of %d shards, in a child: %s ms", total, text);
out:
  free(metadata);
  shard_list_free_paths(path, total);
  shard_list_free(&list);
  return status;
}

int main(int argc, char **argv) {
  struct world world;
  int rounds = argc > 2 ? atoi(argv[2]) : 9;
  children_prepare(NULL, 0);
  if (argc < 2 || rounds < 1 || rounds > MAX_ROUNDS || world_open(&world) != STATUS_OK) {
    fputs("usage: bench_data DIR [ROUNDS]\n", stderr);
    return 2;
  }
  log_open(world.rank, world.host, false);
  enum status status = measure(&world, argv[1], rounds);
  if (status == STATUS_OK && world.rank == 0) status = measure_survey(argv[1], rounds);
  if (status != STATUS_OK) error_print(stderr);
  world_close(&world);
  return (int)status;
}
