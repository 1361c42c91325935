/* From image files to shards; see import.h. */
#include "data/import.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/cifar_binary.h"
#include "data/decode_pool.h"
#include "data/import_member.h"
#include "data/import_set.h"
#include "data/shard_set.h"
#include "data/source.h"
#include "model/base/cores.h"
#include "model/base/log.h"
#include "model/base/random.h"

struct importing {
  struct import_set set;
  struct decode_pool *pool; /* owned */
  char *prefix;             /* owned: the leading part of the members' names; NULL: no member yet */
  enum member_kind kind;    /* MEMBER_IMAGE or MEMBER_CIFAR once known */
  bool batch[CIFAR_BATCHES];
  uint8_t *names; /* owned: batches.meta.txt */
  size_t names_bytes;
  int64_t members, others;
  time_t told; /* when progress was last said */
};

/* All members must lie in one tree and be of one kind. */
static enum status join_tree(struct importing *importing, const char *name, const struct member *member) {
  if (member->kind == MEMBER_CIFAR_NAMES) return STATUS_OK;
  if (!importing->prefix) {
    importing->prefix = strndup(name, member->prefix);
    importing->kind = member->kind;
    if (!importing->prefix) return RAISE(STATUS_INPUT, "no memory for a name");
  }
  if (strlen(importing->prefix) != member->prefix || strncmp(importing->prefix, name, member->prefix) != 0)
    return RAISE(STATUS_INPUT, "%s: a second set of images, the first lies in '%s'; give one of them", name,
                 importing->prefix);
  if (importing->kind != member->kind)
    return RAISE(STATUS_INPUT, "%s: both image files and CIFAR-10's binary files; give one of them", name);
  return STATUS_OK;
}

/* A member's name for a line of output: it may hold anything. */
static const char *printable(const char *name, char *text, size_t capacity) {
  snprintf(text, capacity, "%s", name);
  for (char *at = text; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
  return text;
}

static enum status visit_member(void *context, const char *name, enum source_kind kind, bool *wanted) {
  struct importing *importing = context;
  struct member member;
  *wanted = false;
  if (kind == SOURCE_FOLDER) {
    char class_name[DATASET_CLASS_NAME];
    int label;
    if (!import_member_class_folder(name, class_name)) return STATUS_OK;
    return import_set_class(&importing->set, class_name, &label);
  }
  TRY(import_member_parse(name, &member));
  if (member.kind == MEMBER_OTHER) {
    char text[256];
    if (importing->others++ == 0) log_info("skipped: %s (not an image)", printable(name, text, sizeof text));
    return STATUS_OK;
  }
  if (kind != SOURCE_FILE)
    return RAISE(STATUS_INPUT, "%s is %s, expected a plain file", name,
                 kind == SOURCE_LINK ? "a link that is not followed" : "a special file");
  TRY(join_tree(importing, name, &member));
  *wanted = true;
  return STATUS_OK;
}

static enum status take_image(struct importing *importing, const char *name, const struct member *member,
                              uint8_t *data, size_t bytes) {
  struct import_image image = {.split = (int16_t)member->split, .name = strdup(name + member->prefix)};
  int label = 0;
  enum status status = image.name ? import_set_class(&importing->set, member->class_name, &label)
                                  : RAISE(STATUS_INPUT, "no memory for a name");
  if (status != STATUS_OK) {
    free(image.name);
    free(data);
    return status;
  }
  image.label = (int16_t)label;
  return decode_pool_submit(importing->pool, image, data, bytes);
}

static enum status take_batch(struct importing *importing, const char *name, const struct member *member,
                              uint8_t *data, size_t bytes) {
  enum status status =
      importing->batch[member->batch]
          ? RAISE(STATUS_INPUT, "%s is there twice", name)
          : cifar_binary_add(&importing->set, name + member->prefix, member->split, data, bytes);
  importing->batch[member->batch] = true;
  free(data);
  return status;
}

static enum status visit_data(void *context, const char *name, uint8_t *data, size_t bytes) {
  struct importing *importing = context;
  struct member member;
  importing->members++;
  time_t now = time(NULL);
  if (now >= importing->told + 2) {
    char text[256];
    importing->told = now;
    log_info("read %lld files, now %s", (long long)importing->members, printable(name, text, sizeof text));
  }
  enum status status = import_member_parse(name, &member);
  if (status == STATUS_OK && member.kind == MEMBER_IMAGE)
    return take_image(importing, name, &member, data, bytes);
  if (status == STATUS_OK && member.kind == MEMBER_CIFAR)
    return take_batch(importing, name, &member, data, bytes);
  free(importing->names);
  importing->names = data;
  importing->names_bytes = bytes;
  return status;
}

/* After all batches: none may be missing, and the classes get their names. */
static enum status finish_cifar(struct importing *importing, const char *from) {
  for (int i = 0; i < CIFAR_BATCHES; i++) {
    char name[32];
    snprintf(name, sizeof name, i ? "data_batch_%d.bin" : "test_batch.bin", i);
    if (!importing->batch[i])
      return RAISE(STATUS_INPUT,
                   "%s: %s%s is missing; CIFAR-10's binary version has data_batch_1.bin .. 5 and "
                   "test_batch.bin",
                   from, importing->prefix, name);
  }
  importing->set.classes = 0; /* folder names that looked like classes */
  return cifar_binary_names(&importing->set, "batches.meta.txt", importing->names, importing->names_bytes);
}

/* Reads and decodes everything into importing->set. */
static enum status collect(struct importing *importing, const char *from) {
  TRY(decode_pool_create(cores_usable(), &importing->set, &importing->pool));
  struct source_visitor visitor = {.member = visit_member, .data = visit_data, .context = importing};
  enum status status = source_walk(from, &visitor);
  struct error_record record;
  error_save(&record);
  enum status decoded = decode_pool_finish(importing->pool);
  if (decoded != STATUS_OK) return decoded; /* it came first, and may be why the walk ended */
  error_restore(&record);
  TRY(status);
  if (importing->kind == MEMBER_CIFAR) TRY(finish_cifar(importing, from));
  return import_set_finish(&importing->set, from);
}

/* One split in shuffled order. */
struct shuffled {
  const struct import_image *image;
  uint32_t *order; /* owned */
};

static enum status get_row(void *context, int64_t row, uint8_t *pixels, int32_t *label) {
  const struct shuffled *shuffled = context;
  const struct import_image *image = &shuffled->image[shuffled->order[row]];
  memcpy(pixels, image->pixels, (size_t)image->height * (size_t)image->width * 3);
  *label = image->label;
  return STATUS_OK;
}

static enum status write_shards(const struct import_set *images, const struct import_options *options) {
  struct shuffled shuffled[SPLIT_COUNT] = {{.image = images->image},
                                           {.image = images->image + images->split_count[SPLIT_TRAIN]}};
  const char **class_name = malloc((size_t)images->classes * sizeof *class_name);
  enum status status = STATUS_OK;
  if (!class_name) TRY_OUT(RAISE(STATUS_INPUT, "no memory for class names"));
  for (int i = 0; i < images->classes; i++) class_name[i] = images->class_name[i];
  struct shard_set set = {
      .shape = {images->image[0].height, images->image[0].width, 3, images->classes, class_name}};
  for (int split = 0; split < SPLIT_COUNT; split++) {
    uint32_t count = (uint32_t)images->split_count[split];
    shuffled[split].order = malloc((count ? count : 1) * sizeof(uint32_t));
    if (!shuffled[split].order) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the order of %u images", count));
    random_permutation(random_key(options->seed, RANDOM_IMPORT, (uint32_t)split), count,
                       shuffled[split].order);
    set.split[split] =
        (struct shard_rows){.count = count,
                            .shards = split == SPLIT_TRAIN ? options->train_shards : options->test_shards,
                            .get = get_row,
                            .context = &shuffled[split]};
  }
  TRY_OUT(shard_set_write(&set, options->out, options->overwrite));
out:
  for (int split = 0; split < SPLIT_COUNT; split++) free(shuffled[split].order);
  free(class_name);
  return status;
}

enum status import_run(const struct import_options *options) {
  TRY(shard_set_check(options->out, options->overwrite));
  struct importing importing = {.told = time(NULL)};
  enum status status = STATUS_OK;
  import_set_open(&importing.set);
  TRY_OUT(collect(&importing, options->from));
  const struct import_set *set = &importing.set;
  log_info("%s: %lld training and %lld test images of %dx%d pixels, %d classes", options->from,
           (long long)set->split_count[SPLIT_TRAIN], (long long)set->split_count[SPLIT_TEST],
           set->image[0].height, set->image[0].width, set->classes);
  if (importing.others > 1) log_info("skipped %lld files that are not images", (long long)importing.others);
  TRY_OUT(write_shards(set, options));
out:
  decode_pool_destroy(importing.pool);
  import_set_close(&importing.set);
  free(importing.prefix);
  free(importing.names);
  return status;
}
