/* Definitions of maxpool and avgpool; see op.h. */
#include "tests/reference/reference.h"

/* The first largest element of a window: its place in the window and its offset in the input. */
static int64_t largest(const struct op_desc *desc, const double *in, int64_t n, int64_t h, int64_t w,
                       int64_t c, int *place) {
  const struct maxpool_attr *attr = &desc->attr.maxpool;
  const int64_t *dim = desc->in[0].dim;
  int64_t best = reference_at(dim, n, h * attr->stride, w * attr->stride, c);
  *place = 0;
  for (int r = 0; r < attr->kernel; r++)
    for (int s = 0; s < attr->kernel; s++) {
      int64_t at = reference_at(dim, n, h * attr->stride + r, w * attr->stride + s, c);
      if (in[at] > in[best]) {
        best = at;
        *place = r * attr->kernel + s;
      }
    }
  return best;
}

static void out_shape(const struct op_desc *desc, int64_t out[4]) {
  const struct maxpool_attr *attr = &desc->attr.maxpool;
  const int64_t *in = desc->in[0].dim;
  out[0] = in[0];
  out[1] = (in[1] - attr->kernel) / attr->stride + 1;
  out[2] = (in[2] - attr->kernel) / attr->stride + 1;
  out[3] = in[3];
}

void reference_maxpool_forward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t out[4], i = 0;
  out_shape(desc, out);
  for (int64_t n = 0; n < out[0]; n++)
    for (int64_t h = 0; h < out[1]; h++)
      for (int64_t w = 0; w < out[2]; w++)
        for (int64_t c = 0; c < out[3]; c++, i++) {
          int place;
          io->out[i] = io->in[0][largest(desc, io->in[0], n, h, w, c, &place)];
          if (io->saved[0]) io->saved[0][i] = place;
        }
}

void reference_maxpool_backward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t out[4], i = 0, count = tensor_count(&desc->in[0]);
  out_shape(desc, out);
  for (int64_t at = 0; at < count; at++) io->d_in[0][at] = 0;
  for (int64_t n = 0; n < out[0]; n++)
    for (int64_t h = 0; h < out[1]; h++)
      for (int64_t w = 0; w < out[2]; w++)
        for (int64_t c = 0; c < out[3]; c++, i++) {
          int place;
          io->d_in[0][largest(desc, io->in[0], n, h, w, c, &place)] += io->d_out[i];
        }
}

void reference_avgpool_forward(const struct op_desc *desc, const struct reference_io *io) {
  const int64_t *dim = desc->in[0].dim;
  int64_t area = dim[1] * dim[2], count = tensor_count(&desc->in[0]);
  for (int64_t i = 0; i < dim[0] * dim[3]; i++) io->out[i] = 0;
  for (int64_t i = 0; i < count; i++)
    io->out[i / (area * dim[3]) * dim[3] + i % dim[3]] += io->in[0][i] / (double)area;
}

void reference_avgpool_backward(const struct op_desc *desc, const struct reference_io *io) {
  const int64_t *dim = desc->in[0].dim;
  int64_t area = dim[1] * dim[2], count = tensor_count(&desc->in[0]);
  for (int64_t i = 0; i < count; i++)
    io->d_in[0][i] = io->d_out[i / (area * dim[3]) * dim[3] + i % dim[3]] / (double)area;
}
