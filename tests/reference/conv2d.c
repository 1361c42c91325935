/* Definition of conv2d: cross-correlation with zero padding; see op.h. */
#include "tests/reference/reference.h"

/* The loops that all three products share: for every output element, filter and tap that lies inside the
 * input. */
struct geometry {
  int64_t in[4], out[4], weight[4];
  int stride, pad;
};

static struct geometry geometry(const struct op_desc *desc) {
  const struct conv2d_attr *attr = &desc->attr.conv2d;
  const int64_t *in = desc->in[0].dim;
  return (struct geometry){.in = {in[0], in[1], in[2], in[3]},
                           .out = {in[0], (in[1] + 2 * attr->pad - attr->kernel_h) / attr->stride + 1,
                                   (in[2] + 2 * attr->pad - attr->kernel_w) / attr->stride + 1,
                                   attr->filters},
                           .weight = {attr->filters, attr->kernel_h, attr->kernel_w, in[3]},
                           .stride = attr->stride,
                           .pad = attr->pad};
}

/* One output pixel and one tap: the offsets of the input's and the filters' first channel. */
typedef void visit(const struct geometry *g, const struct reference_io *io, int64_t out, int64_t in,
                   int64_t weight);

static void for_each_tap(const struct geometry *g, const struct reference_io *io, visit *visit_tap) {
  for (int64_t n = 0; n < g->out[0]; n++)
    for (int64_t h = 0; h < g->out[1]; h++)
      for (int64_t w = 0; w < g->out[2]; w++)
        for (int64_t r = 0; r < g->weight[1]; r++)
          for (int64_t s = 0; s < g->weight[2]; s++) {
            int64_t y = h * g->stride - g->pad + r, x = w * g->stride - g->pad + s;
            if (y < 0 || y >= g->in[1] || x < 0 || x >= g->in[2]) continue;
            visit_tap(g, io, reference_at(g->out, n, h, w, 0), reference_at(g->in, n, y, x, 0),
                      reference_at(g->weight, 0, r, s, 0));
          }
}

static void forward_tap(const struct geometry *g, const struct reference_io *io, int64_t out, int64_t in,
                        int64_t weight) {
  int64_t channels = g->in[3], filter = g->weight[1] * g->weight[2] * channels;
  for (int64_t k = 0; k < g->out[3]; k++) {
    double sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += io->in[0][in + c] * io->param[0][weight + k * filter + c];
    io->out[out + k] += sum;
  }
}

static void d_in_tap(const struct geometry *g, const struct reference_io *io, int64_t out, int64_t in,
                     int64_t weight) {
  int64_t channels = g->in[3], filter = g->weight[1] * g->weight[2] * channels;
  for (int64_t k = 0; k < g->out[3]; k++)
    for (int64_t c = 0; c < channels; c++)
      io->d_in[0][in + c] += io->d_out[out + k] * io->param[0][weight + k * filter + c];
}

static void d_weight_tap(const struct geometry *g, const struct reference_io *io, int64_t out, int64_t in,
                         int64_t weight) {
  int64_t channels = g->in[3], filter = g->weight[1] * g->weight[2] * channels;
  for (int64_t k = 0; k < g->out[3]; k++)
    for (int64_t c = 0; c < channels; c++)
      io->d_param[0][weight + k * filter + c] += io->d_out[out + k] * io->in[0][in + c];
}

void reference_conv2d_forward(const struct op_desc *desc, const struct reference_io *io) {
  struct geometry g = geometry(desc);
  int64_t count = g.out[0] * g.out[1] * g.out[2] * g.out[3];
  for (int64_t i = 0; i < count; i++) io->out[i] = desc->attr.conv2d.bias ? io->param[1][i % g.out[3]] : 0;
  for_each_tap(&g, io, forward_tap);
}

void reference_conv2d_backward(const struct op_desc *desc, const struct reference_io *io) {
  struct geometry g = geometry(desc);
  if (io->d_in[0]) {
    for (int64_t i = 0; i < g.in[0] * g.in[1] * g.in[2] * g.in[3]; i++) io->d_in[0][i] = 0;
    for_each_tap(&g, io, d_in_tap);
  }
  if (io->d_param[0]) {
    for (int64_t i = 0; i < g.weight[0] * g.weight[1] * g.weight[2] * g.weight[3]; i++) io->d_param[0][i] = 0;
    for_each_tap(&g, io, d_weight_tap);
  }
  if (io->d_param[1]) {
    for (int64_t k = 0; k < g.out[3]; k++) io->d_param[1][k] = 0;
    for (int64_t i = 0; i < g.out[0] * g.out[1] * g.out[2] * g.out[3]; i++)
      io->d_param[1][i % g.out[3]] += io->d_out[i];
  }
}
