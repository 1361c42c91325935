/* A small checkpoint in a folder of its own, shared by the checkpoint suites. */
#ifndef CONVOY_TESTS_CHECKPOINT_FIXTURE_H
#define CONVOY_TESTS_CHECKPOINT_FIXTURE_H

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/checkpoint.h"
#include "model/base/random.h"

enum { FILTER = 8 * 3 * 3 * 3, BIAS = 8 };

struct fixture {
  char folder[64];
  float filter[FILTER], bias[BIAS], momentum[FILTER], mean[BIAS];
  struct checkpoint_item items[4];
  struct checkpoint_option options[3];
  struct checkpoint_content content;
};

static inline int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  snprintf(f->folder, sizeof f->folder, "/tmp/test_checkpoint.XXXXXX");
  if (!mkdtemp(f->folder)) return -1;
  struct random_key key = random_key(7, RANDOM_TEST, 0);
  for (uint64_t i = 0; i < FILTER; i++) {
    f->filter[i] = (float)random_normal(key, i);
    f->momentum[i] = (float)random_normal(key, 1000 + i);
  }
  for (uint64_t i = 0; i < BIAS; i++) {
    f->bias[i] = (float)random_normal(key, 2000 + i);
    f->mean[i] = (float)random_normal(key, 3000 + i);
  }
  f->bias[0] = -0.0f, f->bias[1] = 1e-42f, f->bias[2] = INFINITY; /* all bit patterns must survive */
  struct tensor filter = tensor_4d(DTYPE_F32, 8, 3, 3, 3), vector = tensor_1d(DTYPE_F32, BIAS);
  f->items[0] = (struct checkpoint_item){CHECKPOINT_PARAMETERS, "layer1.0.conv1.weight", filter, f->filter};
  f->items[1] = (struct checkpoint_item){CHECKPOINT_PARAMETERS, "fc.bias", vector, f->bias};
  f->items[2] = (struct checkpoint_item){CHECKPOINT_MOMENTUM, "layer1.0.conv1.weight", filter, f->momentum};
  f->items[3] = (struct checkpoint_item){CHECKPOINT_STATISTICS, "layer1.0.bn1.running_mean", vector, f->mean};
  f->options[0] = (struct checkpoint_option){"model", "resnet20"};
  f->options[1] = (struct checkpoint_option){"classes", "chat\nchien\nh\xc3\xa9risson"};
  f->options[2] = (struct checkpoint_option){"batch", "128"};
  f->content = (struct checkpoint_content){.progress = {.epoch = 3,
                                                        .position = 17,
                                                        .step = 42,
                                                        .seed = UINT64_MAX - 1,
                                                        .best_accuracy = 0.1 + 0.2,
                                                        .seconds = 12.5,
                                                        .epoch_loss_sum = 1.0 / 3,
                                                        .epoch_samples = 2176,
                                                        .row_samples = 1,
                                                        .complete = true},
                                           .options = f->options,
                                           .option_count = 3,
                                           .items = f->items,
                                           .item_count = 4};
  *state = f;
  return 0;
}

static inline int teardown(void **state) {
  struct fixture *f = *state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", f->folder);
  int result = system(command);
  free(f);
  return result;
}

static inline const char *path_of(const struct fixture *f, const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", f->folder, name);
  return path;
}

static inline bool exists(const struct fixture *f, const char *name) {
  return access(path_of(f, name), F_OK) == 0;
}

static inline int entries(const struct fixture *f) {
  int count = 0;
  DIR *folder = opendir(f->folder);
  assert_non_null(folder);
  for (struct dirent *e; (e = readdir(folder));) count += e->d_name[0] != '.';
  closedir(folder);
  return count;
}

static inline void write_step(struct fixture *f, int64_t step, int keep, bool best) {
  f->content.progress.step = step;
  assert_int_equal(checkpoint_write(f->folder, &f->content, keep, best), STATUS_OK);
}

static inline int64_t newest_step(struct fixture *f) {
  struct checkpoint *c;
  assert_int_equal(checkpoint_newest(f->folder, &c), STATUS_OK);
  if (!c) return 0;
  int64_t step = checkpoint_progress(c)->step;
  checkpoint_close(c);
  return step;
}

#endif
