/* Tables and plots; see scaling_files.h. */
#include "app/scaling_files.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/durable.h"
#include "app/gnuplot.h"
#include "app/output.h"
#include "model/base/folder.h"
#include "model/base/log.h"

static enum status path_of(const char *folder, const char *name, const char *ending, char path[PATH_MAX]) {
  int length = snprintf(path, PATH_MAX, "%s/%s%s", folder, name, ending);
  if (length < 0 || length >= PATH_MAX - 8) /* room for .tmp */
    return RAISE(STATUS_INPUT, "--out is too long: %zu characters", strlen(folder));
  return STATUS_OK;
}

/* What each command writes. */
static const struct {
  const char *command, *name;
  struct output_kind kind;
} outputs[] = {
    {"scaling", "scaling.csv", {"table of convoy bench scaling", "mode,ranks,hosts,batch,"}},
    {"scaling", "scaling.gp", {"script of convoy bench scaling", "# Makes scaling.svg and "}},
    {"predict", "predict.csv", {"table of convoy bench predict", "algorithm,ranks,hosts,step_ms,"}},
    {"predict", "allreduce.csv", {"table of convoy bench predict", "network,ranks,bytes,"}},
    {"predict", "predict.gp", {"script of convoy bench predict", "# Makes predict.svg and "}}};

static enum status check_outputs(const char *folder, const char *name) {
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    if (strcmp(outputs[i].command, name) != 0) continue;
    TRY(path_of(folder, outputs[i].name, "", path));
    TRY(output_check(path, &outputs[i].kind));
  }
  TRY(path_of(folder, name, ".svg", path));
  TRY(output_check(path, &output_svg));
  TRY(path_of(folder, name, ".png", path));
  return output_check(path, &output_png);
}

enum status scaling_folder_open(const char *folder, const char *name, bool overwrite, size_t *made) {
  char path[PATH_MAX];
  TRY(path_of(folder, name, ".csv", path));
  if (!overwrite && access(path, F_OK) == 0)
    return RAISE(STATUS_INPUT, "%s is there already: --overwrite replaces it, or give another --out", path);
  TRY(check_outputs(folder, name));
  TRY(folder_make(folder, made));
  if (access(folder, W_OK | X_OK) != 0)
    return RAISE(STATUS_STORAGE, "cannot write to %s: %s", folder, strerror(errno));
  return STATUS_OK;
}

/* ---- text ---- */

enum status scaling_text_open(struct scaling_text *text) {
  *text = (struct scaling_text){0};
  text->stream = open_memstream(&text->data, &text->bytes);
  return text->stream ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory");
}

enum status scaling_text_close(struct scaling_text *text, const char *folder, const char *name) {
  char path[PATH_MAX];
  enum status status = STATUS_OK;
  bool failed = ferror(text->stream) != 0;
  failed |= fclose(text->stream) != 0;
  if (failed) TRY_OUT(RAISE(STATUS_INPUT, "out of memory"));
  TRY_OUT(path_of(folder, name, "", path));
  TRY_OUT(durable_write(path, &(struct durable_part){.data = text->data, .bytes = text->bytes}, 1));
out:
  free(text->data);
  *text = (struct scaling_text){0};
  return status;
}

/* ---- plots ---- */

void scaling_script_begin(FILE *stream, const char *name, int width, int height) {
  fprintf(
      stream,
      "# Makes %s.svg and %s.png; in this folder: gnuplot %s.gp\n"
      "set datafile separator ','\n"
      "do for [kind in 'svg png'] {\n"
      "if (kind eq 'svg') { set terminal svg size %d,%d font 'sans,13' background 'white' } else {\n"
      "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) { set terminal pngcairo size %d,%d font 'sans,11' } else {\n"
      "set terminal png size %d,%d } }\n"
      "set output '%s.'.kind\n",
      name, name, name, width, height, width, height, width, height, name);
}

void scaling_script_end(FILE *stream) {
  fputs("unset multiplot\nunset output\n}\n", stream);
}

void scaling_plot(const char *folder, const char *name) {
  char script[64];
  snprintf(script, sizeof script, "%s.gp", name);
  struct gnuplot_job job = {.folder = folder, .script = script, .input = -1, .output = -1, .quiet = true};
  if (gnuplot_run(&job, GNUPLOT_SECONDS) == STATUS_OK) {
    log_info("plots: %s/%s.svg and .png; again by 'gnuplot %s' there", folder, name, script);
    return;
  }
  log_warning("no plot: %s; 'gnuplot %s' in %s makes it", error_message(), script, folder);
  error_clear();
}
