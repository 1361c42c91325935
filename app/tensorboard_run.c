/* What TensorBoard shows of a run beside its curves: run.json, example images and their predictions; see
 * tensorboard.h. */
#include <stdlib.h>
#include <string.h>

#include "app/predict.h"
#include "app/train.h"
#include "data/image_encode.h"
#include "model/base/log.h"

enum { SHOWN = 25, FRAME = 2 };

/* Fields of Summary, Summary.Value, Summary.Image and SummaryMetadata. */
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_IMAGE = 4, VALUE_METADATA = 9 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH = 2, IMAGE_COLOURS = 3, IMAGE_FILE = 4 };
enum { METADATA_PLUGIN = 1, METADATA_TITLE = 2, METADATA_DESCRIPTION = 3, PLUGIN_NAME = 1 };

/* ---- run.json ---- */

/* The step that a session's own values stand at, so that a session from the same checkpoint replaces them. */
static int64_t first_step(const struct train *train) {
  int64_t step = train->trainer.at.step;
  return step > 0 ? step + 1 : 0;
}

enum status tensorboard_describe(const struct train *train) {
  char path[OPTION_TEXT + 16], *text = NULL, *line = NULL;
  size_t bytes = 0, room = 0;
  enum status status = STATUS_OK;
  FILE *page = NULL;
  if (!train->trainer.board) return STATUS_OK;
  snprintf(path, sizeof path, "%s/run.json", train->options.out);
  FILE *file = fopen(path, "r");
  if (!file) TRY_OUT(RAISE(STATUS_STORAGE, "%s, written just now, cannot be read", path));
  page = open_memstream(&text, &bytes);
  if (!page) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the description of the run"));
  while (getline(&line, &room, file) > 0) fprintf(page, "    %s", line); /* Markdown's form of code */
  bool failed = ferror(page) != 0;
  failed = fclose(page) != 0 || failed;
  page = NULL;
  if (failed) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the description of the run"));
  tensorboard_text(train->trainer.board, "run", first_step(train), text);
out:
  if (page) fclose(page);
  if (file) fclose(file);
  free(text);
  free(line);
  return status;
}

/* ---- examples ---- */

struct examples {
  int64_t count;
  int64_t index[SHOWN]; /* in the test set */
  int predicted[SHOWN];
  double probability[SHOWN];
};

/* Images spread evenly over the test set, in a batch of a size that the net is made for. */
static enum status predict(const struct session *session, struct examples *examples) {
  const struct dataset *d = session->dataset;
  int64_t first, batch;
  uint64_t ticket;
  enum status status = STATUS_OK;
  session_test_part(session, &first, &batch);
  if (batch > session->eval_batch) batch = session->eval_batch;
  examples->count = batch < SHOWN ? batch : SHOWN;
  if (batch == 0) return STATUS_OK;
  struct sample *list = calloc((size_t)batch, sizeof *list);
  float *logits = calloc((size_t)(batch * d->classes), sizeof *logits);
  if (!list || !logits) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %d images", SHOWN));
  for (int64_t i = 0; i < batch; i++)
    list[i].index = (uint32_t)(i % examples->count * d->test.count / examples->count);
  TRY_OUT(net_plan(session->net, list, batch, &(struct step_row){.scale = 1.0f / (float)batch}, 1));
  TRY_OUT(net_eval_step(session->net, &session->test, batch, &ticket));
  TRY_OUT(net_logits(session->net, batch, logits));
  for (int64_t i = 0; i < examples->count; i++) {
    examples->index[i] = (int64_t)list[i].index;
    examples->predicted[i] = predict_class(logits + i * d->classes, d->classes, &examples->probability[i]);
  }
out:
  free(list);
  free(logits);
  return status;
}

/* The image in colours, with a frame: green, or red where `wrong`. pixels is the caller's. */
static enum status framed(const struct dataset *d, int64_t index, bool wrong, struct image *image) {
  static const uint8_t right_colour[3] = {0x2c, 0xa0, 0x2c}, wrong_colour[3] = {0xd6, 0x27, 0x28};
  const uint8_t *frame = wrong ? wrong_colour : right_colour;
  const uint8_t *from = d->test.images + index * d->height * d->width * d->channels;
  *image = (struct image){.height = d->height + 2 * FRAME, .width = d->width + 2 * FRAME};
  image->pixels = malloc((size_t)image->height * (size_t)image->width * 3);
  if (!image->pixels) return RAISE(STATUS_INPUT, "no memory for an image");
  for (int y = 0; y < image->height; y++)
    for (int x = 0; x < image->width; x++) {
      uint8_t *pixel = image->pixels + 3 * (y * image->width + x);
      int row = y - FRAME, column = x - FRAME;
      bool inside = row >= 0 && row < d->height && column >= 0 && column < d->width;
      const uint8_t *source = from + (row * d->width + column) * d->channels;
      for (int c = 0; c < 3; c++)
        pixel[c] = !inside ? frame[c] : source[c < d->channels ? c : d->channels - 1];
    }
  return STATUS_OK;
}

static const char *class_text(const struct dataset *d, int label, char number[16]) {
  if (d->class_name) return d->class_name[label];
  snprintf(number, 16, "%d", label);
  return number;
}

static enum status add_image(struct protobuf *summary, const struct dataset *d,
                             const struct examples *examples, int64_t i) {
  struct protobuf value = {0}, file = {0}, metadata = {0}, plugin = {0};
  struct image image;
  uint8_t *data;
  size_t bytes;
  char text[256], a[16], b[16];
  int label = d->test.labels[examples->index[i]], predicted = examples->predicted[i];
  TRY(framed(d, examples->index[i], predicted != label, &image));
  enum status status = image_encode_png(&image, &data, &bytes);
  free(image.pixels);
  if (status != STATUS_OK) return error_trace(status, __func__);
  protobuf_integer(&file, IMAGE_HEIGHT, image.height);
  protobuf_integer(&file, IMAGE_WIDTH, image.width);
  protobuf_integer(&file, IMAGE_COLOURS, 3);
  protobuf_bytes(&file, IMAGE_FILE, data, bytes);
  free(data);
  protobuf_text(&plugin, PLUGIN_NAME, "images");
  protobuf_message(&metadata, METADATA_PLUGIN, &plugin);
  protobuf_text(&metadata, METADATA_TITLE, class_text(d, label, a));
  snprintf(text, sizeof text, "class: %s; predicted: %s, %.4f", class_text(d, label, a),
           class_text(d, predicted, b), examples->probability[i]);
  protobuf_text(&metadata, METADATA_DESCRIPTION, text);
  snprintf(text, sizeof text, "examples/%02d", (int)i);
  protobuf_text(&value, VALUE_TAG, text);
  protobuf_message(&value, VALUE_IMAGE, &file);
  protobuf_message(&value, VALUE_METADATA, &metadata);
  protobuf_message(summary, SUMMARY_VALUE, &value);
  return STATUS_OK;
}

/* A bar in a name would end its cell. */
static void put_cell(FILE *page, const char *text) {
  for (; *text; text++) {
    if (*text == '|') fputc('\\', page);
    fputc(*text, page);
  }
  fputs(" | ", page);
}

static enum status put_table(const struct train *train, const struct examples *examples) {
  const struct dataset *d = train->session.dataset;
  char *text = NULL, number[16];
  size_t bytes = 0;
  FILE *page = open_memstream(&text, &bytes);
  if (!page) return RAISE(STATUS_INPUT, "no memory for a table of predictions");
  fputs("| example | test image | class | predicted | probability |\n|---|---|---|---|---|\n", page);
  for (int64_t i = 0; i < examples->count; i++) {
    fprintf(page, "| %02d | %lld | ", (int)i, (long long)examples->index[i]);
    put_cell(page, class_text(d, d->test.labels[examples->index[i]], number));
    put_cell(page, class_text(d, examples->predicted[i], number));
    fprintf(page, "%.6f |\n", examples->probability[i]);
  }
  bool failed = ferror(page) != 0;
  failed = fclose(page) != 0 || failed;
  if (!failed) tensorboard_text(train->trainer.board, "examples/predictions", train->trainer.at.step, text);
  free(text);
  return failed ? RAISE(STATUS_INPUT, "no memory for a table of predictions") : STATUS_OK;
}

static enum status put_examples(const struct train *train) {
  struct examples examples = {0};
  struct protobuf summary = {0};
  TRY(predict(&train->session, &examples));
  TRY(put_table(train, &examples));
  for (int64_t i = 0; i < examples.count; i++) {
    enum status status = add_image(&summary, train->session.dataset, &examples, i);
    if (status == STATUS_OK) continue;
    protobuf_destroy(&summary);
    return error_trace(status, __func__);
  }
  tensorboard_summary(train->trainer.board, train->trainer.at.step, &summary);
  return STATUS_OK;
}

void tensorboard_examples(const struct train *train) {
  if (!train->trainer.board || train->session.dataset->test.count == 0) return;
  if (put_examples(train) == STATUS_OK) return;
  log_warning("no examples for TensorBoard: %s", error_message());
  error_clear();
}
