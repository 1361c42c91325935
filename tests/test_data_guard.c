/* Files on which the HDF5 library crashes, hangs or takes all memory: the child that reads them dies, this
 * process says which shard it was and goes on. */
#include "tests/fixtures/shard_files.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/check.h"
#include "data/child.h"
#include "data/shard_survey.h"

/* ---- a child ---- */

static void crash(const void *context, int socket) {
  (void)context, (void)socket;
  abort();
}

static void hang(const void *context, int socket) {
  (void)context, (void)socket;
  for (volatile unsigned turns = 0;; turns++) continue;
}

static void leave(const void *context, int socket) {
  (void)context, (void)socket;
  _exit(3);
}

#ifndef CONVOY_SANITIZE /* there memory is not limited */
/* Says how much memory it gets: MiB. */
static void swell(const void *context, int socket) {
  (void)context;
  static void *taken[4096];
  int32_t got = 0;
  while (got < 4096 && (taken[got] = malloc(1 << 20)) != NULL) got++;
  (void)child_put(socket, &got, sizeof got);
}
#endif

/* Requests to stop are for the program, not for its child. */
static void raise_stop(const void *context, int socket) {
  (void)context;
  (void)raise(SIGUSR1);
  (void)raise(SIGTERM);
  int32_t done = 7;
  (void)child_put(socket, &done, sizeof done);
}

static int32_t run(child_work *work, char why[64]) {
  struct child *child = NULL;
  int32_t value = -1;
  assert_int_equal(child_start(work, NULL, 0, 64 << 20, &child), STATUS_OK);
  if (!child_get(child_socket(child), &value, sizeof value)) value = -1;
  child_end(child, why, 64);
  return value;
}

static void a_child_may_die(void **state) {
  (void)state;
  char why[64];
  assert_int_equal(run(crash, why), -1);
  assert_true(why[0] != '\0');
#ifndef CONVOY_SANITIZE
  assert_string_equal(why, "it crashed (signal 6)");
  int32_t mib = run(swell, why);
  assert_in_range(mib, 16, 64 + 128); /* address space that malloc had set aside is there already */
#endif
  assert_int_equal(run(hang, why), -1);
  assert_string_equal(why, "it did not come to an end");
  assert_int_equal(run(leave, why), -1);
  assert_string_equal(why, "it ended (code 3)");
  assert_int_equal(run(raise_stop, why), 7);
  assert_string_equal(why, "");
}

/* Takes and frees memory of many sizes, and says who forked it. */
static void allocate(const void *context, int socket) {
  (void)context;
  for (size_t size = 100; size < 20000; size += 97) free(memset(malloc(size), 1, size));
  int32_t parent = (int32_t)getppid();
  (void)child_put(socket, &parent, sizeof parent);
}

static atomic_bool churning;

static void *churn(void *unused) {
  for (size_t turn = 0; churning; turn++) free(memset(malloc(16 + turn * 37 % 5000), 1, 16));
  return unused;
}

/* A lock of the allocator's that another thread holds just then is not held in the child. */
static void threads_do_not_hold_a_child_up(void **state) {
  (void)state;
  pthread_t thread;
  char why[64];
  children_prepare(NULL, 0);
  churning = true;
  assert_int_equal(pthread_create(&thread, NULL, churn, NULL), 0);
  alarm(60); /* instead of waiting for ever */
  for (int i = 0; i < 200; i++) assert_true(run(allocate, why) > 0);
  alarm(0);
  churning = false;
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static void wait_for_end(const void *context, int socket) {
  (void)context;
  int32_t parent = (int32_t)getppid();
  (void)child_put(socket, &parent, sizeof parent);
  (void)child_get(socket, &parent, sizeof parent);
}

/* The process that forks them may be killed: its children end, the next are forked by another. */
static void children_are_forked_again(void **state) {
  (void)state;
  char why[64];
  struct child *child = NULL;
  int32_t parent;
  assert_int_equal(child_start(wait_for_end, NULL, 0, 64 << 20, &child), STATUS_OK);
  assert_true(child_get(child_socket(child), &parent, sizeof parent));
  assert_int_equal(kill((pid_t)parent, SIGKILL), 0);
  assert_false(child_get(child_socket(child), &parent, sizeof parent));
  child_end(child, why, sizeof why);
  assert_non_null(strstr(why, "killed"));
  pid_t forker = (pid_t)run(allocate, why);
  assert_true(forker > 1 && forker != getpid());
  assert_int_equal(kill(forker, SIGKILL), 0);
  assert_true(run(allocate, why) > 0);
  assert_string_equal(why, "");
  children_finish();
  assert_int_equal(waitpid(-1, NULL, 0), -1); /* none is left */
  assert_int_equal(errno, ECHILD);
}

/* With hardly a file descriptor left it does not hold the end of its connection that is this process's: it
 * would never end. */
static void few_files_do_not_keep_it(void **state) {
  (void)state;
  struct rlimit limit;
  children_finish();
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  int first = dup(STDERR_FILENO), second = dup(STDERR_FILENO);
  assert_true(first >= 0 && second > first && close(first) == 0 && close(second) == 0);
  struct rlimit two = {(rlim_t)second + 1, limit.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &two), 0);
  children_prepare(NULL, 0);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* it runs */
  alarm(60);
  children_finish();
  alarm(0);
}

/* The user's limits are no fault of the program. */
static void a_limit_is_named(void **state) {
  (void)state;
  struct child *child = NULL;
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlim_t former = limit.rlim_cur;
  limit.rlim_cur = 1; /* fewer than are open */
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  enum status status = child_start(leave, NULL, 0, 64 << 20, &child);
  limit.rlim_cur = former;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  assert_int_equal(status, STATUS_INPUT);
  assert_non_null(strstr(error_message(), "ulimit -n"));
  error_clear();
}

/* ---- shards ---- */

static unsigned char bytes[1 << 16];

static size_t load(const char *file) {
  FILE *stream = fopen(file, "rb");
  assert_non_null(stream);
  size_t count = fread(bytes, 1, sizeof bytes, stream);
  assert_true(count > 0 && count < sizeof bytes);
  assert_int_equal(fclose(stream), 0);
  return count;
}

static void store(const char *file, size_t count) {
  FILE *stream = fopen(file, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, count, stream), count);
  assert_int_equal(fclose(stream), 0);
}

/* Where the heap with the classes' names begins. */
static size_t find_heap(size_t count) {
  for (size_t i = 0; i + 32 < count; i++)
    if (memcmp(bytes + i, "GCOL", 4) == 0) return i;
  fail_msg("no heap");
  return 0;
}

static int lines;
static char line_text[4096];

static void collect(void *context, const char *line) {
  (void)context;
  lines++;
  snprintf(line_text, sizeof line_text, "%s", line);
}

/* The first name's size in the heap: HDF5 1.10 turns for ever with 255, and leaves its memory with 2^56.
 * Later versions may see it: refused it must be, by the file's name, and no other shard. */
static void a_damaged_heap_is_named(void **state) {
  (void)state;
  static const struct {
    size_t at;
    unsigned char value;
  } damage[] = {{24, 255}, {31, 1}, {30, 255}};
  char shard[256];
  for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
    int64_t faults = 0;
    fixture_clear();
    assert_int_equal(fixture_set(fixture_folder, 3, false), STATUS_OK);
    snprintf(shard, sizeof shard, "%s", fixture_path("train-00001-of-00003.h5"));
    size_t count = load(shard), heap = find_heap(count);
    bytes[heap + damage[i].at] = damage[i].value;
    store(shard, count);
    REFUSED("train-00001-of-00003.h5", "copy");
    if (i == 0) continue; /* once is enough of that */
    lines = 0;
    assert_int_equal(dataset_check(fixture_folder, collect, NULL, &faults), STATUS_OK);
    assert_true(lines >= 1 && faults == lines);
    assert_non_null(strstr(line_text, "train-00001-of-00003.h5"));
  }
}

/* Whatever becomes of a byte of the metadata: lines of faults, or rows that can be asked for. */
static void try_shard(const char *shard) {
  struct shard_metadata metadata;
  assert_int_equal(shard_survey(&shard, 1, &metadata), STATUS_OK);
  const char *line = metadata.fault;
  for (int i = 0; i < metadata.faults; i++, line += strlen(line) + 1) {
    assert_true(line[0] != '\0');
    assert_null(strchr(line, '\n'));
  }
  if (metadata.faults == 0) {
    const struct shard_info *info = &metadata.info;
    struct shard *open = NULL;
    if (shard_open_known(shard, info, &open) == STATUS_OK) {
      int64_t end = shard_piece_end(info, 0, info->count);
      size_t row = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
      uint8_t *images = malloc((size_t)end * row + 1);
      int64_t *labels = malloc(((size_t)end + 1) * sizeof *labels);
      if (images && labels) (void)shard_read(open, 0, end, images, labels);
      free(images);
      free(labels);
    }
    shard_close(open);
    error_clear();
  }
  shard_metadata_free(&metadata, 1);
}

static void any_byte_of_the_metadata_may_be_wrong(void **state) {
  (void)state;
  char shard[256];
  fixture_clear();
  struct fixture_plain plain = fixture_good;
  plain.chunked = true;
  fixture_plain("train-0.h5", SPLIT_TRAIN, &plain);
  snprintf(shard, sizeof shard, "%s", fixture_path("train-0.h5"));
  size_t count = load(shard);
  for (size_t i = 3; i < count; i += 101) {
    unsigned char kept = bytes[i];
    bytes[i] = (unsigned char)(i % 2 ? 255 : kept ^ 16);
    store(shard, count);
    bytes[i] = kept;
    try_shard(shard);
  }
}

/* What a child says is not believed either. */
static void impossible_metadata_is_refused(void **state) {
  (void)state;
  const struct shard_info good = {.count = 10,
                                  .height = 4,
                                  .width = 4,
                                  .channels = 3,
                                  .classes = 10,
                                  .chunk_rows = 1,
                                  .contiguous = 1,
                                  .file_bytes = 1000,
                                  .image_offset = 510,
                                  .label_offset = 990,
                                  .label_bytes = 1};
  assert_int_equal(shard_info_check("x", &good), STATUS_OK);
  struct shard_info bad[9];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) bad[i] = good;
  bad[0].count = -1;
  bad[1].height = 0;
  bad[2].width = INT32_MAX;
  bad[3].channels = 5;
  bad[4].image_offset = 521;
  bad[5].label_bytes = 9;
  bad[6].image_offset = INT64_MIN;
  bad[7].classes = 1001;
  bad[8].count = INT64_MAX / 2;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(shard_info_check("x.h5", &bad[i]), STATUS_INPUT);
    assert_non_null(strstr(error_message(), "x.h5"));
    error_clear();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_child_may_die),
      cmocka_unit_test(threads_do_not_hold_a_child_up),
      cmocka_unit_test(children_are_forked_again),
      cmocka_unit_test(few_files_do_not_keep_it),
      cmocka_unit_test(a_limit_is_named),
      cmocka_unit_test(a_damaged_heap_is_named),
      cmocka_unit_test(any_byte_of_the_metadata_may_be_wrong),
      cmocka_unit_test(impossible_metadata_is_refused),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
