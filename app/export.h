/* `convoy export`: a checkpoint's model in the formats that other programs read. */
#ifndef CONVOY_APP_EXPORT_H
#define CONVOY_APP_EXPORT_H

#include "app/trained.h"
#include "app/options.h"
#include "app/output.h"
#include "model/base/world.h"

enum status export_command(int argc, char **argv, const struct world *world);
extern const struct option_table export_table;

/* Reorders the arrays as PyTorch and ONNX have them: filters K,R,S,C to K,C,R,S (also their shapes), and the
 * columns of a matrix that reads an image from H,W,C to C,H,W order. */
enum status export_reorder(const struct graph *graph, struct trained_arrays *arrays);
/* The way back, elements and shapes; and the reordered shapes alone. */
enum status export_restore(const struct graph *graph, struct trained_arrays *arrays);
void export_shapes(const struct graph *graph, struct trained_arrays *arrays);

extern const struct output_kind export_onnx_kind, export_safetensors_kind; /* of their files */

/* Each writes `path` (whole or not at all, see durable.h) from reordered arrays.
 *
 * ONNX (opset 17): input `images`, float32 N,C,H,W in 0..1; output `logits`, N,classes; N is free. The
 * normalisation is part of the graph. Metadata: the classes' names as a JSON list, and where it comes from.
 * STATUS_INPUT for an operation that it cannot say, or above protobuf's 2 GB. */
enum status export_onnx(const struct trained *trained, const struct trained_arrays *arrays, const char *path);

/* safetensors: the arrays under torchvision's names, with each batchnorm's num_batches_tracked. */
enum status export_safetensors(const struct trained *trained, const struct trained_arrays *arrays,
                               const char *path);

/* The classes' names as a JSON list, `["cat","dog"]`; malloc, NULL if there is no memory. */
char *export_class_list(const struct trained *trained);

#endif
