/* Definition of conv_pool: the chain that it stands for, op by op; see op.h. */
#include "tests/reference/reference.h"

#include <math.h>
#include <stdlib.h>

/* The chain's parts and its inner values. */
struct chain {
  struct op_desc conv, pool;
  double *conv_out; /* also the pooling's input */
  double *pooled;   /* the activation's input */
  double *place;
  int64_t conv_count, count;
};

static struct chain chain_create(const struct op_desc *desc, const struct reference_io *io) {
  const struct conv2d_attr *attr = &desc->attr.conv_pool.conv;
  const struct maxpool_attr *window = &desc->attr.conv_pool.maxpool;
  const int64_t *in = desc->in[0].dim;
  struct chain chain = {
      .conv = {.kind = OP_CONV2D, .training = desc->training, .in_count = 1, .in = {desc->in[0]}},
      .pool = {.kind = OP_MAXPOOL, .training = desc->training, .in_count = 1}};
  chain.conv.attr.conv2d = *attr;
  chain.pool.attr.maxpool = *window;
  int64_t h = (in[1] + 2 * attr->pad - attr->kernel_h) / attr->stride + 1;
  int64_t w = (in[2] + 2 * attr->pad - attr->kernel_w) / attr->stride + 1;
  chain.pool.in[0] = tensor_4d(DTYPE_F32, in[0], h, w, attr->filters);
  chain.conv_count = tensor_count(&chain.pool.in[0]);
  chain.count = in[0] * ((h - window->kernel) / window->stride + 1) *
                ((w - window->kernel) / window->stride + 1) * attr->filters;
  chain.conv_out = reference_array(chain.conv_count);
  chain.pooled = reference_array(chain.count);
  chain.place = reference_array(chain.count);

  struct reference_io conv_io = {
      .in = {io->in[0]}, .param = {io->param[0], io->param[1]}, .out = chain.conv_out};
  reference_conv2d_forward(&chain.conv, &conv_io);
  struct reference_io pool_io = {.in = {chain.conv_out}, .out = chain.pooled, .saved = {chain.place}};
  reference_maxpool_forward(&chain.pool, &pool_io);
  return chain;
}

static void chain_destroy(struct chain *chain) {
  free(chain->conv_out);
  free(chain->pooled);
  free(chain->place);
}

/* The convolution's output that pooled element i finds at a place of its window. */
static int64_t chosen(const struct chain *chain, int64_t i, int place) {
  const struct maxpool_attr *attr = &chain->pool.attr.maxpool;
  const int64_t *dim = chain->pool.in[0].dim;
  int64_t c = i % dim[3], at = i / dim[3];
  int64_t rows = (dim[1] - attr->kernel) / attr->stride + 1,
          columns = (dim[2] - attr->kernel) / attr->stride + 1;
  int64_t w = at % columns, h = at / columns % rows, n = at / columns / rows;
  return reference_at(dim, n, h * attr->stride + place / attr->kernel,
                      w * attr->stride + place % attr->kernel, c);
}

void reference_conv_pool_forward(const struct op_desc *desc, const struct reference_io *io) {
  struct chain chain = chain_create(desc, io);
  for (int64_t i = 0; i < chain.count; i++) {
    io->out[i] = reference_activation(desc->attr.conv_pool.activation, chain.pooled[i]);
    if (io->saved[0]) io->saved[0][i] = chain.place[i];
  }
  chain_destroy(&chain);
}

void reference_conv_pool_backward(const struct op_desc *desc, const struct reference_io *io) {
  bool relu = desc->attr.conv_pool.activation == ACTIVATION_RELU;
  struct chain chain = chain_create(desc, io);
  const double *place = io->saved[0] ? io->saved[0] : chain.place;
  double *d_conv = reference_array(chain.conv_count);
  for (int64_t i = 0; i < chain.count; i++)
    if (!relu || io->out[i] > 0) d_conv[chosen(&chain, i, (int)place[i])] += io->d_out[i];
  struct reference_io conv_io = {.in = {io->in[0]},
                                 .param = {io->param[0], io->param[1]},
                                 .d_out = d_conv,
                                 .d_in = {io->d_in[0]},
                                 .d_param = {io->d_param[0], io->d_param[1]}};
  reference_conv2d_backward(&chain.conv, &conv_io);
  free(d_conv);
  chain_destroy(&chain);
}

void reference_conv_pool_chosen(const struct op_desc *desc, const struct reference_io *io,
                                const double *place, double *value) {
  int kernel = desc->attr.conv_pool.maxpool.kernel;
  struct chain chain = chain_create(desc, io);
  for (int64_t i = 0; i < chain.count; i++) {
    bool inside = place[i] >= 0 && place[i] < kernel * kernel;
    value[i] = inside ? chain.conv_out[chosen(&chain, i, (int)place[i])] : NAN;
    for (int before = 0; inside && before < (int)place[i]; before++)
      if (chain.conv_out[chosen(&chain, i, before)] == value[i]) inside = false;
    if (!inside) value[i] = NAN;
  }
  chain_destroy(&chain);
}
