/* The command `convoy report` and its page; see report.h. */
#include "app/report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app/durable.h"
#include "app/options.h"
#include "model/base/log.h"

struct report_options {
  struct option_words runs;
  char out[OPTION_TEXT];
};

#define FIELD(member) .offset = offsetof(struct report_options, member)
static const struct option_row rows[] = {
    {.name = "run",
     .type = OPTION_WORDS,
     FIELD(runs),
     .value = "RUNDIR",
     .flags = OPTION_REQUIRED | OPTION_OPERAND,
     .help = "folders of runs, up to 8"},
    {.name = "out",
     .letter = 'o',
     .type = OPTION_TEXT_VALUE,
     FIELD(out),
     .value = "FILE",
     .initial = "report.html",
     .help = "the page; one that is there is replaced"},
};
const struct option_table report_table = {
    .command = "convoy report",
    .summary = "Makes a page of runs' curves, options and results: one HTML file.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

struct run {
  const char *folder; /* borrowed */
  cJSON *json;        /* run.json; NULL: not read */
};

static const struct chart {
  const char *title, *file, *x, *y, *x_title;
} charts[] = {
    {"Training loss", "loss.csv", "step", "loss", "step"},
    {"Test accuracy", "epochs.csv", "epoch", "test_accuracy", "epoch"},
    {"Test loss", "epochs.csv", "epoch", "test_loss", "epoch"},
    {"Training accuracy", "epochs.csv", "epoch", "train_accuracy", "epoch"},
    {"Images per second", "loss.csv", "step", "images_per_s", "step"},
    {"Learning rate", "loss.csv", "step", "lr", "step"},
};
enum { CHARTS = sizeof charts / sizeof *charts };

static const char style[] =
    ":root{--back:#fff;--text:#1b1f24;--soft:#667;--line:#dde;--c0:#0067b0;--c1:#c65b00;--c2:#00805a;--c3:#"
    "b0408a;"
    "--c4:#7a5c00;--c5:#2b8fc9;--c6:#8a3ffc;--c7:#444}\n"
    "@media (prefers-color-scheme:dark){:root{--back:#15181c;--text:#e6e8ea;--soft:#9aa3ad;--line:#2c3239;"
    "--c0:#56b4e9;--c1:#ff9d45;--c2:#2fd6a3;--c3:#f08cc8;--c4:#e8d34a;--c5:#8fc7ff;--c6:#c49bff;--c7:#ccc}}\n"
    "body{background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif;margin:24px "
    "auto;max-width:1320px;"
    "padding:0 16px}\n"
    "h1{font-size:24px}h2{font-size:18px;margin:28px 0 8px}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}\n"
    "figure{margin:0;border:1px solid var(--line);border-radius:6px}svg{display:block;width:100%}\n"
    "svg text{fill:var(--soft);font-size:12px}svg .title{fill:var(--text);font-size:15px;font-weight:600}\n"
    ".grid{stroke:var(--line)}polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}\n"
    "table{border-collapse:collapse;display:block;overflow-x:auto}\n"
    "th,td{border-bottom:1px solid var(--line);padding:3px 14px 3px 0;text-align:left;vertical-align:top}\n"
    "td.name{color:var(--soft);white-space:nowrap}.key{display:inline-block;width:14px;height:4px;margin:0 "
    "7px 4px 0}\n";

/* ---- reading ---- */

static enum status read_json(const char *folder, cJSON **json) {
  char path[PATH_MAX];
  struct stat info;
  enum status status = STATUS_OK;
  char *text = NULL;
  snprintf(path, sizeof path, "%s/run.json", folder);
  FILE *file = fopen(path, "r");
  if (!file || fstat(fileno(file), &info) != 0)
    TRY_OUT(RAISE(STATUS_INPUT, "%s: %s; expected the folder of a run", path, strerror(errno)));
  text = malloc((size_t)info.st_size + 1);
  if (!text) TRY_OUT(RAISE(STATUS_INPUT, "%s: no memory", path));
  size_t count = fread(text, 1, (size_t)info.st_size, file);
  *json = cJSON_ParseWithLength(text, count);
  if (!cJSON_IsObject(*json)) TRY_OUT(RAISE(STATUS_INPUT, "%s is not a JSON object: damaged?", path));
out:
  free(text);
  if (file) fclose(file);
  return status;
}

/* ---- writing ---- */

static void put_text(FILE *page, const char *text) {
  for (; *text; text++) switch (*text) {
    case '<':
      fputs("&lt;", page);
      break;
    case '>':
      fputs("&gt;", page);
      break;
    case '&':
      fputs("&amp;", page);
      break;
    case '"':
      fputs("&quot;", page);
      break;
    default:
      fputc(*text, page);
    }
}

/* A value as text, malloc; "" if there is none, or no memory. */
static char *value_text(const struct run *run, const char *section, const char *name) {
  const cJSON *object = section ? cJSON_GetObjectItemCaseSensitive(run->json, section) : run->json;
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  char number[32];
  if (cJSON_IsString(item)) return strdup(item->valuestring);
  if (cJSON_IsNumber(item)) {
    snprintf(number, sizeof number, "%.9g", item->valuedouble);
    return strdup(number);
  }
  return item && !cJSON_IsNull(item) ? cJSON_PrintUnformatted(item) : strdup("");
}

/* One row: a name and each run's value. With `differing`, only if two of them differ. Returns rows written.
 */
static int put_row(FILE *page, const struct run *run, int count, const char *section, const char *name,
                   const char *label, bool differing) {
  char *value[REPORT_RUNS];
  bool differ = false, any = false;
  for (int r = 0; r < count; r++) {
    value[r] = value_text(&run[r], section, name);
    any = any || (value[r] && value[r][0]);
    differ = differ || !value[r] || !value[0] || strcmp(value[r], value[0]) != 0;
  }
  bool wanted = differing ? differ : any;
  if (wanted) {
    fputs("<tr><td class=\"name\">", page);
    put_text(page, label);
    for (int r = 0; r < count; r++) {
      fputs("</td><td>", page);
      if (value[r]) put_text(page, value[r]);
    }
    fputs("</td></tr>\n", page);
  }
  for (int r = 0; r < count; r++) free(value[r]);
  return wanted;
}

static void put_head(FILE *page, const struct run *run, int count) {
  fputs("<table><tr><th></th>", page);
  for (int r = 0; r < count; r++) {
    fprintf(page, "<th><span class=\"key\" style=\"background:var(--c%d)\"></span>", r);
    put_text(page, run[r].folder);
    fputs("</th>", page);
  }
  fputs("</tr>\n", page);
}

/* Whether a run before this one names that option too. */
static bool named_before(const struct run *run, int r, const char *name) {
  for (int i = 0; i < r; i++)
    if (cJSON_HasObjectItem(cJSON_GetObjectItemCaseSensitive(run[i].json, "options"), name)) return true;
  return false;
}

static void put_options(FILE *page, const struct run *run, int count, bool differing) {
  fprintf(page, "<h2>%s</h2>\n", differing ? "Options that differ" : "Options");
  put_head(page, run, count);
  int written = 0;
  for (int r = 0; r < count; r++) {
    const cJSON *option;
    cJSON_ArrayForEach(option, cJSON_GetObjectItemCaseSensitive(run[r].json, "options")) {
      if (strcmp(option->string, "out") == 0 || named_before(run, r, option->string)) continue;
      written += put_row(page, run, count, "options", option->string, option->string, differing);
    }
  }
  if (written == 0) fputs("<tr><td>none</td></tr>\n", page);
  fputs("</table>\n", page);
}

static void put_results(FILE *page, const struct run *run, int count) {
  static const char *const names[][3] = {{NULL, "status", "status"},
                                         {NULL, "started", "started"},
                                         {"result", "step", "steps"},
                                         {"result", "epochs", "epochs"},
                                         {"result", "seconds", "seconds of training"},
                                         {"result", "test_accuracy", "test accuracy"},
                                         {"result", "best_test_accuracy", "best test accuracy"},
                                         {"result", "test_loss", "test loss"},
                                         {"model", "name", "model"},
                                         {"model", "parameters", "parameters"},
                                         {"world", "ranks", "ranks"},
                                         {"world", "hosts", "hosts"},
                                         {"world", "host", "first host"},
                                         {"versions", "device", "device"},
                                         {"versions", "convoy", "Convoy"},
                                         {"versions", "mpi", "MPI"},
                                         {"data", "digest", "data digest"}};
  fputs("<h2>Results and machines</h2>\n", page);
  put_head(page, run, count);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    put_row(page, run, count, names[i][0], names[i][1], names[i][2], false);
  fputs("</table>\n", page);
}

static enum status put_chart(FILE *page, const struct chart *chart, const struct run *run, int count) {
  struct report_series series[REPORT_RUNS] = {{.count = 0}};
  enum status status = STATUS_OK;
  for (int r = 0; r < count; r++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", run[r].folder, chart->file);
    TRY_OUT(report_read(path, chart->x, chart->y, &series[r]));
  }
  report_chart(page, chart->title, chart->x_title, series, count);
out:
  for (int r = 0; r < count; r++) report_series_destroy(&series[r]);
  return status;
}

static enum status put_page(FILE *page, const struct run *run, int count) {
  fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Convoy report</title>\n"
        "<meta name=\"viewport\" content=\"width=device-width\"><style>\n",
        page);
  fputs(style, page);
  for (int c = 0; c < REPORT_RUNS; c++)
    fprintf(page, "polyline.run%d{stroke:var(--c%d)}circle.run%d{fill:var(--c%d)}\n", c, c, c, c);
  fprintf(page, "</style></head><body>\n<h1>Convoy: %d run%s</h1>\n", count, count == 1 ? "" : "s");
  put_results(page, run, count);
  fputs("<h2>Curves</h2>\n<div class=\"charts\">\n", page);
  for (int i = 0; i < CHARTS; i++) TRY(put_chart(page, &charts[i], run, count));
  fputs("</div>\n", page);
  if (count > 1) put_options(page, run, count, true);
  put_options(page, run, count, false);
  fputs("</body></html>\n", page);
  return STATUS_OK;
}

/* ---- the command ---- */

static enum status run_report(const struct report_options *options) {
  struct run run[REPORT_RUNS] = {{.json = NULL}};
  int count = options->runs.count;
  char *text = NULL;
  size_t bytes = 0;
  enum status status = STATUS_OK;
  FILE *page = NULL;
  if (count > REPORT_RUNS)
    return RAISE(STATUS_INPUT, "found %d runs; a page takes at most %d", count, REPORT_RUNS);
  for (int r = 0; r < count; r++) {
    run[r].folder = options->runs.word[r];
    TRY_OUT(read_json(run[r].folder, &run[r].json));
  }
  page = open_memstream(&text, &bytes);
  if (!page) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the page"));
  TRY_OUT(put_page(page, run, count));
  bool failed = ferror(page) != 0;
  failed = fclose(page) != 0 || failed;
  page = NULL;
  if (failed) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the page"));
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
  TRY_OUT(world_agree(world, options_parse(&report_table, argc, argv, &options)));
  TRY_OUT(world_agree(world, world->rank == 0 ? run_report(&options) : STATUS_OK));
out:
  free((void *)options.runs.word);
  return status;
}
