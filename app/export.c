/* The command `convoy export`; see export.h. */
#include "app/export.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/option_rows.h"
#include "app/utf8.h"
#include "model/base/log.h"

struct export_options {
  char checkpoint[OPTION_TEXT], out[OPTION_TEXT];
  int format;
  bool quiet;
};

enum { FORMAT_ONNX, FORMAT_SAFETENSORS };
static const char *const formats[] = {[FORMAT_ONNX] = "onnx", [FORMAT_SAFETENSORS] = "safetensors", NULL};

#define OPTION_STRUCT struct export_options
// clang-format off
static const struct option_row rows[] = {
    ROW_CHECKPOINT,
    TEXT("out", out, NULL, "FILE", OPTION_REQUIRED, "the file to write; a former export is replaced", .letter = 'o'),
    CHOICE("format", format, formats, "onnx", 0, "onnx: with normalisation and class names; safetensors: torchvision's names"),
    FLAG("quiet", quiet, OPTION_OWN, "say nothing", .letter = 'q'),
};
// clang-format on
const struct option_table export_table =
    OPTION_TABLE("export", "Writes a checkpoint's model as ONNX or safetensors.", rows);

char *export_class_list(const struct trained *trained) {
  cJSON *list = cJSON_CreateStringArray((const char *const *)trained->class_name, trained->graph->classes);
  char *text = cJSON_PrintUnformatted(list);
  cJSON_Delete(list);
  if (text) utf8_mend(text);
  return text;
}

/* ---- the command ---- */

static enum status run(const struct export_options *options) {
  struct trained trained;
  struct trained_arrays arrays = {0};
  enum status status;
  bool onnx = options->format == FORMAT_ONNX;
  TRY(output_check(options->out, onnx ? &export_onnx_kind : &export_safetensors_kind));
  TRY(trained_open(options->checkpoint, &trained));
  TRY_OUT(trained_read(&trained, &arrays));
  TRY_OUT(export_reorder(trained.graph, &arrays));
  TRY_OUT(onnx ? export_onnx(&trained, &arrays, options->out)
               : export_safetensors(&trained, &arrays, options->out));
  log_info("%s: %s of %s (step %" PRId64 "), %" PRId64 " parameters", options->out, trained.model,
           checkpoint_name(trained.checkpoint), checkpoint_progress(trained.checkpoint)->step,
           graph_parameter_count(trained.graph));
out:
  trained_arrays_destroy(&arrays);
  trained_close(&trained);
  return status;
}

enum status export_command(int argc, char **argv, const struct world *world) {
  struct export_options options = {0};
  TRY(options_agree(world, &export_table, &options, options_parse(&export_table, argc, argv, &options)));
  log_open(world->rank, world->host, options.quiet);
  return world_agree(world, world->rank == 0 ? run(&options) : STATUS_OK);
}
