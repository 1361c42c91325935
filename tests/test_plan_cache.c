/* Choices by timing: kept, found again, shared between ranks; files that are damaged, foreign or cannot be
 * written. The backend is a stand-in whose choices name the rank and the start that made them. Run by mpirun
 * it is the same suite on several ranks (program/test_start.sh). */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/plan_cache.h"
#include "model/ops/choices.h"

static struct world world;
static char folder[] = "/tmp/convoy-plans-XXXXXX"; /* rank 0's, the same on all */

/* ---- choices ---- */

static struct choice_key key_of(uint32_t kind, const char *text) {
  return (struct choice_key){.kind = kind, .data = text, .bytes = strlen(text)};
}

static void choices_come_back(void **state) {
  (void)state;
  struct choices one = {0}, two = {0};
  void *bytes, *fresh;
  size_t count, found;
  assert_int_equal(choices_add(&one, key_of(1, "a"), "he", 2, "llo", 3), STATUS_OK);
  assert_int_equal(choices_add(&one, key_of(2, "a"), "", 0, NULL, 0), STATUS_OK);
  assert_int_equal(choices_add(&one, key_of(1, "longer"), "12345678", 8, NULL, 0), STATUS_OK);
  assert_null(choices_find(&one, key_of(1, "b"), &found));
  assert_int_equal(choices_write(&one, false, &bytes, &count), STATUS_OK);
  assert_int_equal(choices_add(&two, key_of(1, "a"), "mine", 4, NULL, 0), STATUS_OK);
  assert_int_equal(choices_read(&two, bytes, count), STATUS_OK);
  const void *value = choices_find(&two, key_of(1, "a"), &found);
  assert_int_equal(found, 4); /* what was there stays */
  assert_memory_equal(value, "mine", 4);
  assert_non_null(choices_find(&two, key_of(2, "a"), &found));
  assert_int_equal(found, 0);
  value = choices_find(&two, key_of(1, "longer"), &found);
  assert_int_equal(found, 8);
  assert_memory_equal(value, "12345678", 8);
  assert_int_equal((uintptr_t)value % 8, 0);
  size_t fresh_count;
  assert_int_equal(choices_write(&two, true, &fresh, &fresh_count), STATUS_OK);
  choices_destroy(&one);
  assert_int_equal(choices_read(&one, fresh, fresh_count), STATUS_OK);
  assert_null(choices_find(&one, key_of(1, "longer"), &found));
  assert_non_null(choices_find(&one, key_of(1, "a"), &found));
  free(fresh);
  choices_destroy(&one);
  choices_destroy(&two);
  for (size_t cut = 1; cut < count; cut++) { /* at a boundary it is a shorter array, elsewhere refused */
    size_t whole = 12 + 1 + 5, second = whole + 12 + 1;
    char *part = malloc(cut);
    assert_non_null(part);
    memcpy(part, bytes, cut);
    enum status status = choices_read(&two, part, cut);
    assert_int_equal(status, cut == whole || cut == second ? STATUS_OK : STATUS_INPUT);
    error_clear();
    choices_destroy(&two);
    free(part);
  }
  free(bytes);
}

/* ---- a stand-in for a backend ---- */

struct stand_in {
  struct backend base;
  struct choices choices;
  int made;   /* choices in this start */
  bool fails; /* it cannot give its choices */
};

static enum status get(struct backend *backend, bool fresh, void **bytes, size_t *count) {
  const struct stand_in *own = (struct stand_in *)backend;
  if (own->fails) return RAISE(STATUS_INPUT, "this rank fails");
  return choices_write(&own->choices, fresh, bytes, count);
}

static enum status put(struct backend *backend, const void *bytes, size_t count) {
  return choices_read(&((struct stand_in *)backend)->choices, bytes, count);
}

static const struct backend_table table = {.name = "stand-in", .choices_get = get, .choices_put = put};

/* One start: begin, an algorithm for each of `shapes`, end. value[i]: what shape i got. */
static int start_of(const char *option, const char *kind, const char *work, const char *shapes, int number,
                    int value[]) {
  struct stand_in backend = {.base = {.table = &table, .world = &world}};
  struct plan_cache cache;
  snprintf(backend.base.kind, sizeof backend.base.kind, "%s", kind);
  assert_int_equal(plan_cache_begin(&cache, option, work, &backend.base), STATUS_OK);
  for (int i = 0; shapes[i]; i++) {
    struct choice_key key = {.kind = 0, .data = shapes + i, .bytes = 1};
    size_t bytes;
    const int *known = choices_find(&backend.choices, key, &bytes);
    int chosen = 100 * number + world.rank;
    if (!known) {
      backend.made++;
      assert_int_equal(choices_add(&backend.choices, key, &chosen, sizeof chosen, NULL, 0), STATUS_OK);
    }
    value[i] = known ? *known : chosen;
  }
  assert_int_equal(plan_cache_end(&cache, &backend.base, STATUS_OK), STATUS_OK);
  choices_destroy(&backend.choices);
  return backend.made;
}

/* Rank r also has a shape of its own. */
static const char *my_shapes(void) {
  static char shapes[] = "abc?";
  shapes[3] = (char)('A' + world.rank);
  return shapes;
}

static void a_second_start_times_nothing(void **state) {
  (void)state;
  int value[4];
  int made = start_of(folder, "chip 1", "work", my_shapes(), 1, value);
  assert_int_equal(made, world.rank == 0 ? 4 : 1);
  for (int i = 0; i < 3; i++) assert_int_equal(value[i], 100); /* rank 0's on all */
  assert_int_equal(value[3], 100 + world.rank);
  assert_int_equal(start_of(folder, "chip 1", "work", my_shapes(), 2, value), 0);
  for (int i = 0; i < 3; i++) assert_int_equal(value[i], 100);
  assert_int_equal(value[3], 100 + world.rank);
  /* a shape more is added to what is known */
  made = start_of(folder, "chip 1", "work", "abcz", 3, value);
  assert_int_equal(made, 1);
  assert_int_equal(start_of(folder, "chip 1", "work", "abcz", 4, value), 0);
  assert_int_equal(value[0], 100);
}

static void other_devices_versions_and_work_are_apart(void **state) {
  (void)state;
  int value[4];
  start_of(folder, "chip 1", "work", "abc", 1, value);
  start_of(folder, "chip 2", "work", "abc", 5, value);
  assert_int_equal(value[0], 500);
  start_of(folder, "chip 1", "other work", "abc", 6, value);
  assert_int_equal(value[0], 600);
  if (world.size == 1) return;
  /* a rank with another device keeps to itself */
  const char *kind = world.rank == world.size - 1 ? "chip 4" : "chip 3";
  int made = start_of(folder, kind, "work", "abc", 7, value);
  assert_int_equal(made, world.rank == 0 || world.rank == world.size - 1 ? 3 : 0);
  assert_int_equal(value[0], world.rank == world.size - 1 ? 700 + world.rank : 700);
}

static void none_and_deterministic_keep_nothing(void **state) {
  (void)state;
  int value[3];
  for (int i = 0; i < 2; i++) { /* still, the ranks run the same */
    int made = start_of("none", "chip 5", "work", "abc", 8 + i, value);
    assert_int_equal(made, world.rank == 0 ? 3 : 0);
    assert_int_equal(value[0], 800 + 100 * i);
  }
  for (int i = 0; i < 2; i++) assert_int_equal(start_of(folder, "", "work", "abc", 9, value), 3);
}

/* The others do not wait for it, and go on together. */
static void a_rank_that_fails_fails_all(void **state) {
  (void)state;
  int value[3];
  for (int rank = 0; rank < world.size; rank++) {
    struct stand_in backend = {.base = {.table = &table, .world = &world, .kind = "chip 7"}};
    struct plan_cache cache;
    struct choice_key key = {.kind = 0, .data = "a", .bytes = 1};
    assert_int_equal(plan_cache_begin(&cache, "none", "work", &backend.base), STATUS_OK);
    assert_int_equal(choices_add(&backend.choices, key, &rank, sizeof rank, NULL, 0), STATUS_OK);
    backend.fails = rank == world.rank;
    assert_int_equal(plan_cache_end(&cache, &backend.base, STATUS_OK), STATUS_INPUT);
    assert_true(world_agreed(&world, STATUS_INPUT));
    assert_int_equal(error_message()[0] != '\0', rank == world.rank);
    error_clear();
    /* what failed before is told, and not what fails then */
    assert_int_equal(plan_cache_begin(&cache, "none", "work", &backend.base), STATUS_OK);
    enum status made = rank == world.rank ? RAISE(STATUS_NUMERIC, "the ops") : STATUS_OK;
    assert_int_equal(plan_cache_end(&cache, &backend.base, made), made == STATUS_OK ? STATUS_INPUT : made);
    assert_string_equal(error_message(), made == STATUS_OK ? "" : "the ops");
    error_clear();
    choices_destroy(&backend.choices);
    start_of("none", "chip 7", "work", "abc", rank, value);
    assert_int_equal(value[0], 100 * rank);
  }
}

/* ---- files that are not as they should be ---- */

static void rewrite(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

static bool reads(const char *path, const char *key, const char *expected) {
  void *bytes;
  size_t count;
  plan_cache_read(path, key, &bytes, &count);
  bool same = bytes && count == strlen(expected) && memcmp(bytes, expected, count) == 0;
  assert_true(same || !bytes);
  free(bytes);
  return same;
}

static void a_damaged_or_foreign_file_is_not_used(void **state) {
  (void)state;
  char path[PLAN_CACHE_PATH], text[512];
  if (world.rank > 0) return;
  assert_true(plan_cache_path(folder, "a key", path));
  plan_cache_write(path, "a key", "some choices", 12);
  assert_true(reads(path, "a key", "some choices"));
  assert_false(reads(path, "another key", "some choices"));
  assert_false(reads(path, "a", "some choices"));
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  size_t length = fread(text, 1, sizeof text, file);
  fclose(file);
  for (size_t i = 0; i < length; i++) { /* every byte counts */
    text[i] ^= 4;
    rewrite(path, text, length);
    assert_false(reads(path, "a key", "some choices"));
    text[i] ^= 4;
    rewrite(path, text, i); /* and every length */
    assert_false(reads(path, "a key", "some choices"));
  }
  rewrite(path, text, length);
  assert_true(reads(path, "a key", "some choices"));
  text[length] = 'x';
  rewrite(path, text, length + 1);
  assert_false(reads(path, "a key", "some choices"));
  assert_false(reads("/dev/zero", "a key", ""));
  assert_false(reads(folder, "a key", ""));
  assert_int_equal(unlink(path), 0);
}

static void a_folder_that_takes_nothing_is_no_error(void **state) {
  (void)state;
  int value[3];
  static const char *const folders[] = {"/proc/convoy", "/dev/null/convoy", "/dev/null"};
  for (int i = 0; i < 3; i++) {
    int made = start_of(folders[i], "chip 6", "work", "abc", 1 + i, value);
    assert_int_equal(made, world.rank == 0 ? 3 : 0);
  }
}

static void the_folder_is_the_users(void **state) {
  (void)state;
  char path[PLAN_CACHE_PATH], inside[sizeof folder + 16];
  struct stat facts;
  if (world.rank > 0) return;
  snprintf(inside, sizeof inside, "%s/cache", folder);
  assert_int_equal(setenv("HOME", "/home/somebody", 1), 0);
  assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
  assert_true(plan_cache_path("", "key", path));
  assert_ptr_equal(strstr(path, "/home/somebody/.cache/convoy/"), path);
  assert_int_equal(setenv("XDG_CACHE_HOME", inside, 1), 0);
  assert_true(plan_cache_path("", "key", path));
  plan_cache_write(path, "key", "value", 5); /* makes cache and convoy in it */
  assert_true(reads(path, "key", "value"));
  assert_int_equal(stat(path, &facts), 0);
  assert_int_equal(facts.st_mode & 077, 0);
  assert_int_equal(unsetenv("HOME"), 0);
  assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0); /* XDG: to be ignored */
  assert_false(plan_cache_path("", "key", path));
}

/* The file of this number in folder/many; with a suffix what a killed write leaves. */
static const char *path_of(int number, const char *suffix, char path[PLAN_CACHE_PATH]) {
  snprintf(path, PLAN_CACHE_PATH, "%s/many/%016x.plans%s", folder, (unsigned)number, suffix);
  return path;
}

/* Writes a file last used so many seconds after 1970. */
static void write_used_at(const char *path, time_t seconds) {
  const struct timespec used = {.tv_sec = seconds}, times[2] = {used, used};
  plan_cache_write(path, "key", "value", 5);
  assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void what_was_not_used_for_long_is_removed(void **state) {
  (void)state;
  char path[PLAN_CACHE_PATH], foreign[PLAN_CACHE_PATH];
  if (world.rank > 0) return;
  snprintf(foreign, sizeof foreign, "%s/many/0.plans", folder);
  write_used_at(foreign, 1);
  write_used_at(path_of(0, ".AbCdEf", path), 2);
  for (int i = 1; i < PLAN_CACHE_FILES; i++) write_used_at(path_of(i, "", path), 1000 + i);
  assert_int_equal(access(path_of(0, ".AbCdEf", path), F_OK), 0); /* just as many as may stay */
  assert_true(reads(path_of(1, "", path), "key", "value"));
  plan_cache_write(path_of(1000, "", path), "key", "value", 5);
  assert_int_equal(access(path_of(0, ".AbCdEf", path), F_OK), -1);
  plan_cache_write(path_of(1001, "", path), "key", "value", 5);
  assert_true(reads(path_of(1, "", path), "key", "value")); /* it was in use */
  assert_int_equal(access(path_of(2, "", path), F_OK), -1);
  assert_true(reads(path_of(3, "", path), "key", "value"));
  assert_true(reads(path_of(1001, "", path), "key", "value"));
  assert_int_equal(access(foreign, F_OK), 0);
}

static int remove_folder(void) {
  char command[sizeof folder + 16];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(choices_come_back),
      cmocka_unit_test(a_second_start_times_nothing),
      cmocka_unit_test(other_devices_versions_and_work_are_apart),
      cmocka_unit_test(none_and_deterministic_keep_nothing),
      cmocka_unit_test(a_rank_that_fails_fails_all),
      cmocka_unit_test(a_damaged_or_foreign_file_is_not_used),
      cmocka_unit_test(a_folder_that_takes_nothing_is_no_error),
      cmocka_unit_test(the_folder_is_the_users),
      cmocka_unit_test(what_was_not_used_for_long_is_removed),
  };
  if (world_open(&world) != STATUS_OK) return 1;
  if (world.rank == 0 && !mkdtemp(folder)) world_abort(&world, 1);
  if (world_broadcast(&world, folder, sizeof folder, 0) != STATUS_OK) world_abort(&world, 1);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (failed) world_abort(&world, 1); /* the others may wait for this rank */
  if (world_barrier(&world) != STATUS_OK) world_abort(&world, 1);
  if (world.rank == 0 && remove_folder() != 0) failed = 1;
  world_close(&world);
  return failed;
}
