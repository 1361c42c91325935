/* The option parser: every type, its ranges, both forms on the command line, the config file, refusals by
 * name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/train_options.h"

enum { MAX_WORDS = 32 };

/* Parses "a b c" as a command line of convoy train. */
static enum status parse(const char *line, struct train_options *options) {
  static char copy[1024];
  char *argv[MAX_WORDS] = {"train"};
  int argc = 1;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *word = strtok(copy, " "); word && argc < MAX_WORDS; word = strtok(NULL, " "))
    argv[argc++] = word;
  error_clear();
  return train_options_parse(argc, argv, options);
}

/* The line is refused, and the record holds `expected`. */
static void refuse(const char *line, const char *expected) {
  struct train_options options;
  char whole[1024];
  snprintf(whole, sizeof whole, "--data d --out o %s", line);
  if (parse(whole, &options) != STATUS_INPUT) fail_msg("accepted: %s", line);
  if (!strstr(error_message(), expected))
    fail_msg("%s: found '%s', expected '%s' in it", line, error_message(), expected);
  if (strchr(error_message(), '\n')) fail_msg("%s: more than one line: %s", line, error_message());
}

static void write_config(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static void defaults_are_those_of_the_table(void **state) {
  (void)state;
  struct train_options o;
  assert_int_equal(parse("--data d --out o", &o), STATUS_OK);
  assert_string_equal(o.model, "simplecnn");
  assert_int_equal(o.epochs, 2);
  assert_int_equal(o.batch, 128);
  assert_true(o.lr == 0.001);
  assert_int_equal(o.optimizer, 1);
  assert_int_equal(o.fuse, 1);
  assert_int_equal(o.steps, 0);
  assert_int_equal(o.mean.count, 0);
  assert_false(o.resume);
}

static void each_type_is_read(void **state) {
  (void)state;
  struct train_options o;
  assert_int_equal(
      parse("--data d --out=o --batch 96 --lr=2.5e-2 --optimizer sgd --augment flip,crop -q --nesterov "
            "--mean 0.5,0.25,0.125 --std 0.5 --seed 9007199254740992",
            &o),
      STATUS_OK);
  assert_int_equal(o.batch, 96);
  assert_true(o.lr == 0.025);
  assert_int_equal(o.optimizer, 0);
  assert_int_equal(o.augment, AUGMENT_FLIP | AUGMENT_CROP);
  assert_true(o.quiet && o.nesterov);
  assert_int_equal(o.mean.count, 3);
  assert_true(o.mean.value[2] == 0.125);
  assert_int_equal(o.std.count, 1);
  assert_true(o.seed == 9007199254740992);
}

static void text_reads_back(void **state) {
  (void)state;
  struct train_options o, again = {0};
  assert_int_equal(parse("--data d --out o --lr 0.1 --beta2 0.9995 --mean 0.1,0.2,0.3 --deterministic", &o),
                   STATUS_OK);
  for (int i = 0; i < train_table.count; i++) {
    const struct option_row *row = &train_table.rows[i];
    char text[OPTION_TEXT], other[OPTION_TEXT];
    options_text(row, &o, text, sizeof text);
    bool unset = text[0] == '\0' || (row->type != OPTION_FLAG && !row->initial && strcmp(text, "0") == 0);
    if (unset) continue;
    assert_int_equal(options_set(row, row->name, text, &again), STATUS_OK);
    assert_string_equal(options_text(row, &again, other, sizeof other), text);
  }
  char text[OPTION_TEXT];
  assert_string_equal(options_text(options_find(&train_table, "lr"), &o, text, sizeof text), "0.1");
  o.lr = 1.0 / 3;
  assert_string_equal(options_text(options_find(&train_table, "lr"), &o, text, sizeof text),
                      "0.3333333333333333");
  o.lr = nextafter(0.1, 1);
  assert_string_equal(options_text(options_find(&train_table, "lr"), &o, text, sizeof text),
                      "0.10000000000000002");
  assert_true(again.lr == 0.1 && again.beta2 == o.beta2 && again.mean.value[1] == o.mean.value[1]);
}

/* Behind `--` a word is an operand, whatever it looks like; the first one only. */
static void two_dashes_end_options(void **state) {
  (void)state;
  struct files {
    struct option_words images;
    bool json;
  } files = {.json = false};
  static const struct option_row rows[] = {
      {.name = "images", .type = OPTION_WORDS, .flags = OPTION_OPERAND | OPTION_REQUIRED, .value = "IMAGE"},
      {.name = "json", .type = OPTION_FLAG, .offset = offsetof(struct files, json)},
  };
  const struct option_table table = {.command = "convoy predict", .rows = rows, .count = 2};
  char *argv[] = {"predict", "a.png", "--", "--json", "-b.png", "--", "-"};
  assert_int_equal(options_parse(&table, 7, argv, &files), STATUS_OK);
  assert_false(files.json);
  assert_int_equal(files.images.count, 5);
  for (int i = 0; i < 5; i++)
    assert_string_equal(files.images.word[i], ((const char *[]){"a.png", "--json", "-b.png", "--", "-"})[i]);
  free((void *)files.images.word);
  files.images = (struct option_words){0};
  assert_int_equal(options_parse(&table, 2, (char *[]){"predict", "--"}, &files), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "needs images"));
}

/* Every number's row: below, above, no number, nan, inf; every choice: an unknown one. */
static void every_row_refuses(void **state) {
  (void)state;
  for (int i = 0; i < train_table.count; i++) {
    const struct option_row *row = &train_table.rows[i];
    char line[256], option[64];
    snprintf(option, sizeof option, "--%s", row->name);
    bool number = row->type == OPTION_INTEGER || row->type == OPTION_REAL || row->type == OPTION_TRIPLE;
    const char *const wrong[] = {"x", "nan", "inf", "-inf", "1e999", "0x10", "7z", "1,2"};
    for (size_t w = 0; number && w < sizeof wrong / sizeof *wrong; w++) {
      snprintf(line, sizeof line, "%s %s", option, wrong[w]);
      refuse(line, option);
    }
    if (number) {
      snprintf(line, sizeof line, "%s=%.17g", option,
               row->flags & OPTION_ABOVE ? row->least : row->least - 1);
      refuse(line, option);
      snprintf(line, sizeof line, "%s=%.17g", option, row->most * 1.1);
      refuse(line, option);
    }
    if (row->type == OPTION_CHOICE) {
      snprintf(line, sizeof line, "%s %sq", option, row->choice[0]);
      refuse(line, row->choice[0]);
    }
  }
}

static void refusals_name_the_option(void **state) {
  (void)state;
  refuse("--batch 0", "--batch is '0'");
  refuse("--batch 1.5", "--batch is '1.5'");
  refuse("--lr 0", "above 0");
  refuse("--lr nan", "--lr is 'nan'");
  refuse("--lr 1e-50", "--lr is '1e-50'; expected a finite number above 0"); /* 0 where it is used */
  refuse("--epochs x", "--epochs is 'x'");
  refuse("--epohcs 3", "did you mean 'epochs'");
  refuse("--optimizer adm", "the nearest is 'adam'");
  refuse("--batch", "--batch has no value");
  refuse("--seed -1", "--seed is '-1'");
  refuse("--mean 1,2", "R,G,B");
  refuse("--mean 1,2,3,4", "R,G,B");
  refuse("--std 0.5,0,0.5", "--std");
  refuse("--lanes 3", "--lanes is 3");
  refuse("stray", "unexpected word 'stray'");
  refuse("-z", "-z");
  refuse("-- --lr", "unexpected word '--lr'");
  refuse("--resume --overwrite", "--overwrite");
  refuse("--scale-lr linear", "--base-batch");
  refuse("--base-batch 64", "--scale-lr");
  refuse("--config /nowhere/x.conf", "/nowhere/x.conf");
  struct train_options o;
  assert_int_equal(parse("--out o", &o), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "--data"));
}

static void command_line_wins_over_file(void **state) {
  (void)state;
  char path[] = "/tmp/convoy-config-XXXXXX", line[128];
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  write_config(path, "# a comment\n\ndata = here\nout=there\nbatch = 32\n  lr = 0.5\ndeterministic = on\n");
  struct train_options o;
  snprintf(line, sizeof line, "--batch 64 --config %s", path);
  assert_int_equal(parse(line, &o), STATUS_OK);
  assert_string_equal(o.data, "here");
  assert_int_equal(o.batch, 64);
  assert_true(o.lr == 0.5 && o.deterministic);
  const struct {
    const char *text, *expected;
  } wrong[] = {
      {"\nbatches = 3\n", ":2: unknown option 'batches'; did you mean 'batch'"},
      {"lr = 1\nbatch = 0\n", ":2: batch is '0'"},
      {"[train]\nbatch = 1\n", "[train]"},
      {"config = x\n", "command line"},
      {"batch\n", ":1"},
      {"deterministic = maybe\n", "on or off"},
      {"lanes = 6\n", "lanes"},
  };
  snprintf(line, sizeof line, "--config %s", path);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    write_config(path, wrong[i].text);
    refuse(line, wrong[i].expected);
  }
  char *long_line = calloc(1, 5000);
  assert_non_null(long_line);
  snprintf(long_line, 5000, "data = %0*d", 4000, 0);
  write_config(path, long_line);
  refuse(line, path);
  free(long_line);
  unlink(path);
}

static void help_names_every_option(void **state) {
  (void)state;
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  assert_non_null(stream);
  options_help(&train_table, stream);
  assert_int_equal(fclose(stream), 0);
  for (int i = 0; i < train_table.count; i++) {
    char name[64];
    snprintf(name, sizeof name, "--%s", train_table.rows[i].name);
    if (!strstr(text, name)) fail_msg("%s", name);
  }
  free(text);
  char *argv[] = {"train", "--data", "--help"};
  assert_true(options_help_wanted(3, argv));
  assert_false(options_help_wanted(2, argv));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_are_those_of_the_table),
      cmocka_unit_test(each_type_is_read),
      cmocka_unit_test(text_reads_back),
      cmocka_unit_test(two_dashes_end_options),
      cmocka_unit_test(every_row_refuses),
      cmocka_unit_test(refusals_name_the_option),
      cmocka_unit_test(command_line_wins_over_file),
      cmocka_unit_test(help_names_every_option),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
