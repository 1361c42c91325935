/* The page of `convoy report`; see report_parts.h. */
#include <stdlib.h>
#include <string.h>

#include "app/report_parts.h"

const char *const report_colours[REPORT_RUNS] = {"#0067b0", "#c65b00", "#00805a", "#b0408a",
                                                 "#7a5c00", "#2b8fc9", "#8a3ffc", "#444444"};
static const char *const dark_colours[REPORT_RUNS] = {"#56b4e9", "#ff9d45", "#2fd6a3", "#f08cc8",
                                                      "#e8d34a", "#8fc7ff", "#c49bff", "#cccccc"};
static const char light[] = ":root{--back:#fff;--text:#1b1f24;--soft:#667;--line:#dde}\n",
                  dark[] = ":root{--back:#15181c;--text:#e6e8ea;--soft:#9aa3ad;--line:#2c3239}\n";
static const char style[] =
    "body{background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif;margin:24px "
    "auto;max-width:1320px;"
    "padding:0 16px}\n"
    "h1{font-size:24px}h2{font-size:18px;margin:28px 0 8px}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}\n"
    "figure{margin:0;border:1px solid var(--line);border-radius:6px}svg{display:block;width:100%}\n"
    "svg text{fill:var(--soft);font-size:12px}svg .title{fill:var(--text);font-size:15px;font-weight:600}\n"
    ".grid{stroke:var(--line)}polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}\n"
    ".dashed{stroke-dasharray:6 4}\n"
    "table{border-collapse:collapse;display:block;overflow-x:auto}\n"
    "th,td{border-bottom:1px solid var(--line);padding:3px 14px 3px 0;text-align:left;vertical-align:top}\n"
    "td.name{color:var(--soft);white-space:nowrap}.key{display:inline-block;width:14px;height:4px;margin:0 "
    "7px 4px 0}\n";

/* A value as text, malloc; "" if there is none, or no memory. */
static char *value_text(const struct report_run *run, const char *section, const char *name) {
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
static int put_row(FILE *page, const struct report_run *run, int count, const char *section, const char *name,
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
    report_put_text(page, label);
    for (int r = 0; r < count; r++) {
      fputs("</td><td>", page);
      if (value[r]) report_put_text(page, value[r]);
    }
    fputs("</td></tr>\n", page);
  }
  for (int r = 0; r < count; r++) free(value[r]);
  return wanted;
}

static void put_head(FILE *page, const struct report_run *run, int count) {
  fputs("<table><tr><th></th>", page);
  for (int r = 0; r < count; r++) {
    fprintf(page, "<th><span class=\"key\" style=\"background:var(--c%d)\"></span>", r);
    report_put_text(page, run[r].folder);
    fputs("</th>", page);
  }
  fputs("</tr>\n", page);
}

/* Whether a run before this one names that option too. */
static bool named_before(const struct report_run *run, int r, const char *name) {
  for (int i = 0; i < r; i++)
    if (cJSON_HasObjectItem(cJSON_GetObjectItemCaseSensitive(run[i].json, "options"), name)) return true;
  return false;
}

static void put_options(FILE *page, const struct report_run *run, int count, bool differing) {
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

static void put_results(FILE *page, const struct report_run *run, int count) {
  static const char *const names[][3] = {{NULL, "status", "status"},
                                         {NULL, "started", "started"},
                                         {"result", "step", "steps"},
                                         {"result", "epochs", "epochs"},
                                         {"result", "seconds", "seconds of training"},
                                         {"result", "start_seconds", "seconds to the first step"},
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
                                         {"data", "training_images", "training images"},
                                         {"data", "digest", "data digest"}};
  fputs("<h2>Results and machines</h2>\n", page);
  put_head(page, run, count);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    put_row(page, run, count, names[i][0], names[i][1], names[i][2], false);
  fputs("</table>\n", page);
}

/* Seconds of the sessions, as run.json has them. */
static void put_times(FILE *page, const struct report_run *run, int count) {
  static const char *const names[][2] = {{"session_steps", "steps"},
                                         {"session_wait", "of these: waiting for other ranks"},
                                         {"session_data", "of these: waiting for data"},
                                         {"session_evaluation", "evaluation"},
                                         {"session_saves", "standing for a checkpoint"},
                                         {"session_planning", "order of the epochs"},
                                         {"step_spread", "a step over the ranks: least, median, most"},
                                         {"slowest_host", "slowest host"}};
  fputs("<h2>Where the time went (seconds of the last session, rank 0)</h2>\n", page);
  put_head(page, run, count);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    put_row(page, run, count, "result", names[i][0], names[i][1], false);
  fputs("</table>\n", page);
}

static void put_colours(FILE *page, const char *others, const char *const colour[REPORT_RUNS]) {
  fputs(others, page);
  for (int c = 0; c < REPORT_RUNS; c++) fprintf(page, ":root{--c%d:%s}\n", c, colour[c]);
}

static void put_style(FILE *page) {
  put_colours(page, light, report_colours);
  fputs("@media (prefers-color-scheme:dark){\n", page);
  put_colours(page, dark, dark_colours);
  fputs("}\n", page);
  fputs(style, page);
  for (int c = 0; c < REPORT_RUNS; c++)
    fprintf(page, "polyline.run%d{stroke:var(--c%d)}circle.run%d,rect.part%d{fill:var(--c%d)}\n", c, c, c, c,
            c);
}

static enum status put_figures(FILE *page, const struct report_run *run, int count) {
  struct report_figure *figure = calloc(REPORT_FIGURES, sizeof *figure);
  struct report_bars *bars = calloc(2, sizeof *bars);
  int figures = 0;
  enum status status = STATUS_OK;
  if (!figure || !bars) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the page"));
  TRY_OUT(report_figures(run, count, figure, &figures));
  TRY_OUT(report_step_bars(run, count, &bars[1]));
  report_session_bars(run, count, &bars[0]);
  fputs("<h2>Curves</h2>\n<div class=\"charts\">\n", page);
  for (int i = 0; i < figures; i++) report_chart(page, &figure[i]);
  for (int i = 0; i < 2; i++) report_bar_chart(page, &bars[i]);
  fputs("</div>\n", page);
out:
  report_figures_destroy(figure, figures);
  free(figure);
  free(bars);
  return status;
}

#define TITLE "<title>Convoy report</title>"
const struct output_kind report_page_kind = {"page of convoy report", TITLE};

enum status report_page(FILE *page, const struct report_run *run, int count) {
  fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" TITLE "\n"
        "<meta name=\"viewport\" content=\"width=device-width\"><style>\n",
        page);
  put_style(page);
  fprintf(page, "</style></head><body>\n<h1>Convoy: %d run%s</h1>\n", count, count == 1 ? "" : "s");
  put_results(page, run, count);
  TRY(put_figures(page, run, count));
  put_times(page, run, count);
  if (count > 1) put_options(page, run, count, true);
  put_options(page, run, count, false);
  fputs("</body></html>\n", page);
  return STATUS_OK;
}
