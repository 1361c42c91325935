/* The command `convoy report`; see report.h. */
#include "app/report.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/durable.h"
#include "app/input.h"
#include "app/option_rows.h"
#include "app/output.h"
#include "app/report_parts.h"
#include "model/base/log.h"

struct report_options {
  struct option_words runs;
  char out[OPTION_TEXT], svg[OPTION_TEXT], png[OPTION_TEXT];
};

#define OPTION_STRUCT struct report_options
/* clang-format off */
static const struct option_row rows[] = {
    WORDS("run", runs, "RUNDIR", OPTION_REQUIRED, "folders of runs, up to 8"),
    TEXT("out", out, "report.html", "FILE", 0, "the page; a former one is replaced", .letter = 'o'),
    TEXT("svg", svg, NULL, "FILE", 0, "the curves as a picture, too, by gnuplot"),
    TEXT("png", png, NULL, "FILE", 0, "the same as PNG"),
};
/* clang-format on */
const struct option_table report_table = OPTION_TABLE(
    "report", "Makes a page of runs' curves, options and results: one HTML file; with gnuplot, a picture.",
    rows);

/* run.json; a folder that has only a scaling.csv needs none. */
static enum status read_json(const char *folder, cJSON **json) {
  char path[PATH_MAX], reason[INPUT_REASON];
  int64_t bytes;
  enum status status = STATUS_OK;
  char *text = NULL;
  snprintf(path, sizeof path, "%s/scaling.csv", folder);
  bool scaling = access(path, R_OK) == 0;
  snprintf(path, sizeof path, "%s/run.json", folder);
  FILE *file = input_open(path, &bytes, reason);
  if (!file && errno == ENOENT && scaling) return STATUS_OK;
  if (!file) TRY_OUT(RAISE(STATUS_INPUT, "%s: %s; expected the folder of a run", path, reason));
  text = malloc((size_t)bytes + 1);
  if (!text) TRY_OUT(RAISE(STATUS_INPUT, "%s: no memory", path));
  size_t count = fread(text, 1, (size_t)bytes, file);
  *json = cJSON_ParseWithLength(text, count);
  if (!cJSON_IsObject(*json)) TRY_OUT(RAISE(STATUS_INPUT, "%s is not a JSON object: damaged?", path));
out:
  free(text);
  if (file) fclose(file);
  return status;
}

/* Before anything is read or drawn. */
static enum status check_outputs(const struct report_options *options) {
  const char *const path[] = {options->out, options->svg, options->png};
  const struct output_kind *const kind[] = {&report_page_kind, &output_svg, &output_png};
  for (int i = 0; i < 3; i++) {
    if (!path[i][0]) continue;
    TRY(output_check(path[i], kind[i]));
    for (int j = 0; j < i; j++)
      if (path[j][0] && output_same(path[i], path[j]))
        return RAISE(STATUS_INPUT, "%s is to be both a %s and a %s; give two names", path[i], kind[j]->name,
                     kind[i]->name);
  }
  return STATUS_OK;
}

static enum status run_report(const struct report_options *options) {
  struct report_run run[REPORT_RUNS] = {{.json = NULL}};
  int count = options->runs.count;
  char *text = NULL;
  size_t bytes = 0;
  enum status status = STATUS_OK;
  FILE *page = NULL;
  if (count > REPORT_RUNS)
    return RAISE(STATUS_INPUT, "found %d runs; a page takes at most %d", count, REPORT_RUNS);
  TRY(check_outputs(options));
  for (int r = 0; r < count; r++) {
    run[r].folder = options->runs.word[r];
    TRY_OUT(read_json(run[r].folder, &run[r].json));
  }
  page = open_memstream(&text, &bytes);
  if (!page) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the page"));
  TRY_OUT(report_page(page, run, count));
  bool failed = ferror(page) != 0;
  failed = fclose(page) != 0 || failed;
  page = NULL;
  if (failed) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the page"));
  if (options->svg[0]) TRY_OUT(report_plot(run, count, "svg", options->svg));
  if (options->png[0]) TRY_OUT(report_plot(run, count, "png", options->png));
  TRY_OUT(durable_write(options->out, &(struct durable_part){text, bytes}, 1));
  log_info("%s: %d run%s", options->out, count, count == 1 ? "" : "s");
out:
  if (page) fclose(page);
  free(text);
  for (int r = 0; r < count; r++) cJSON_Delete(run[r].json);
  return status;
}

enum status report_command(int argc, char **argv, const struct world *world) {
  struct report_options options = {.runs = {.count = 0}};
  enum status status;
  TRY_OUT(options_agree(world, &report_table, &options, options_parse(&report_table, argc, argv, &options)));
  TRY_OUT(world_agree(world, world->rank == 0 ? run_report(&options) : STATUS_OK));
out:
  free((void *)options.runs.word);
  return status;
}
