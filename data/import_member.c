/* Names of imported members; see import_member.h. */
#include "data/import_member.h"

#include <string.h>
#include <strings.h>

#include "data/shard_list.h"

enum { DEPTH = 64 };

/* The components of a path: begin and length each; `.` and empty ones are left out. */
struct parts {
  int count;
  const char *at[DEPTH];
  size_t length[DEPTH];
};

static bool split_path(const char *name, struct parts *parts) {
  parts->count = 0;
  while (*name) {
    size_t length = strcspn(name, "/");
    if (length > 0 && !(length == 1 && name[0] == '.')) {
      if (parts->count == DEPTH) return false;
      parts->at[parts->count] = name;
      parts->length[parts->count++] = length;
    }
    name += length;
    while (*name == '/') name++;
  }
  return true;
}

static bool is(const struct parts *parts, int i, const char *text) {
  return parts->length[i] == strlen(text) && memcmp(parts->at[i], text, parts->length[i]) == 0;
}

static bool climbs(const struct parts *parts) {
  for (int i = 0; i < parts->count; i++)
    if (is(parts, i, "..")) return true;
  return false;
}

static bool hidden(const struct parts *parts) {
  for (int i = 0; i < parts->count; i++)
    if ((parts->at[i][0] == '.' && !is(parts, i, "..")) || is(parts, i, "__MACOSX")) return true;
  return false;
}

static int split_of(const struct parts *parts, int i) {
  if (is(parts, i, "train")) return SPLIT_TRAIN;
  return is(parts, i, "test") ? SPLIT_TEST : -1;
}

static bool is_image(const char *base) {
  const char *dot = strrchr(base, '.');
  return dot &&
         (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

/* CIFAR-10's files by name. */
static enum member_kind cifar_kind(const char *base, struct member *member) {
  if (strcmp(base, "batches.meta.txt") == 0) return MEMBER_CIFAR_NAMES;
  member->split = SPLIT_TEST;
  if (strcmp(base, "test_batch.bin") == 0) return MEMBER_CIFAR;
  member->split = SPLIT_TRAIN;
  if (strncmp(base, "data_batch_", 11) != 0 || strcmp(base + 12, ".bin") != 0) return MEMBER_OTHER;
  member->batch = base[11] - '0';
  return member->batch >= 1 && member->batch <= 5 ? MEMBER_CIFAR : MEMBER_OTHER;
}

static enum status take_class(const char *name, const struct parts *parts, int i, struct member *member) {
  size_t length = parts->length[i];
  if (length >= DATASET_CLASS_NAME)
    return RAISE(STATUS_INPUT, "%s: a class name of %zu bytes, expected at most %d", name, length,
                 DATASET_CLASS_NAME - 1);
  memcpy(member->class_name, parts->at[i], length);
  member->class_name[length] = '\0';
  for (const char *at = member->class_name; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 127)
      return RAISE(STATUS_INPUT, "%s: control character %d in a class name", name, *at);
  return STATUS_OK;
}

enum status import_member_parse(const char *name, struct member *member) {
  struct parts parts;
  *member = (struct member){.kind = MEMBER_OTHER};
  const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
  enum member_kind kind = is_image(base)       ? MEMBER_IMAGE
                          : strlen(base) >= 12 ? cifar_kind(base, member)
                                               : MEMBER_OTHER;
  if (kind == MEMBER_OTHER) return STATUS_OK;
  if (!split_path(name, &parts)) return RAISE(STATUS_INPUT, "%s: more than %d folders deep", name, DEPTH);
  if (hidden(&parts)) return STATUS_OK;
  if (name[0] == '/' || climbs(&parts))
    return RAISE(STATUS_INPUT, "%s: absolute path or '..' in an archive, refused", name);
  int folders = parts.count - 1, own = kind == MEMBER_IMAGE ? 2 : 0;
  if (kind == MEMBER_IMAGE) {
    member->split = folders >= 2 ? split_of(&parts, folders - 2) : -1;
    if (member->split < 0)
      return RAISE(STATUS_INPUT, "%s: an image outside of train|test/CLASS/; move or remove it", name);
    TRY(take_class(name, &parts, folders - 1, member));
  }
  member->prefix = (size_t)(parts.at[folders - own] - name);
  member->kind = kind;
  return STATUS_OK;
}

bool import_member_class_folder(const char *name, char class_name[DATASET_CLASS_NAME]) {
  struct parts parts;
  struct member member;
  if (!split_path(name, &parts) || parts.count < 2 || hidden(&parts) || climbs(&parts)) return false;
  if (split_of(&parts, parts.count - 2) < 0) return false;
  if (take_class(name, &parts, parts.count - 1, &member) != STATUS_OK) {
    error_clear();
    return false;
  }
  memcpy(class_name, member.class_name, sizeof member.class_name);
  return true;
}
