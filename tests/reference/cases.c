/* The table of test shapes; see cases.h. */
#include "tests/reference/cases.h"

#include <stdio.h>

#define T4(n, h, w, c)                                                                                       \
  {                                                                                                          \
    DTYPE_F32, 4, {                                                                                          \
      n, h, w, c                                                                                             \
    }                                                                                                        \
  }
#define T2(n, c)                                                                                             \
  {                                                                                                          \
    DTYPE_F32, 2, {                                                                                          \
      n, c                                                                                                   \
    }                                                                                                        \
  }

/* input N,H,W,C; filters, kernel, stride, pad, bias */
#define CONV(n, h, w, c, k, r, s, stride, pad, bias)                                                         \
  {                                                                                                          \
    .desc = {.in_count = 1, .in = {T4(n, h, w, c)}, .attr.conv2d = {k, r, s, stride, pad, bias} }            \
  }

static const struct op_case conv2d_cases[] = {
    CONV(1, 5, 7, 3, 4, 3, 3, 1, 0, true),        CONV(3, 9, 7, 3, 16, 3, 3, 2, 1, false),
    CONV(1, 7, 5, 8, 5, 5, 3, 1, 1, true),        CONV(3, 4, 4, 1, 1, 3, 3, 1, 1, false),
    CONV(2, 1, 1, 8, 8, 1, 1, 1, 0, false),       CONV(2, 6, 5, 5, 7, 1, 1, 1, 0, true),
    CONV(2, 9, 9, 16, 32, 1, 1, 2, 0, false),     CONV(5, 6, 6, 64, 16, 3, 3, 1, 1, true),
    CONV(7, 8, 8, 16, 16, 3, 3, 1, 1, false),     CONV(2, 11, 11, 3, 8, 7, 7, 2, 3, false),
    CONV(3, 4, 4, 16, 1, 1, 1, 1, 0, true),       CONV(2, 5, 5, 32, 15, 1, 1, 1, 0, false),
    CONV(4, 32, 32, 3, 32, 3, 3, 1, 0, true),  /* simplecnn */
    CONV(2, 32, 32, 3, 64, 3, 3, 1, 1, false), /* resnet18 */
    CONV(1, 32, 32, 64, 64, 3, 3, 1, 1, false),   CONV(1, 32, 32, 64, 128, 3, 3, 2, 1, false),
    CONV(1, 32, 32, 64, 128, 1, 1, 2, 0, false),  CONV(1, 16, 16, 128, 128, 3, 3, 1, 1, false),
    CONV(1, 16, 16, 128, 256, 3, 3, 2, 1, false), CONV(2, 16, 16, 128, 256, 1, 1, 2, 0, false),
    CONV(1, 8, 8, 256, 256, 3, 3, 1, 1, false),   CONV(1, 8, 8, 256, 512, 3, 3, 2, 1, false),
    CONV(3, 8, 8, 256, 512, 1, 1, 2, 0, false),   CONV(17, 4, 4, 512, 512, 3, 3, 1, 1, false),
    CONV(2, 32, 32, 3, 16, 3, 3, 1, 1, false), /* resnet20 */
    CONV(3, 32, 32, 16, 16, 3, 3, 1, 1, false),   CONV(2, 32, 32, 16, 32, 3, 3, 2, 1, false),
    CONV(2, 32, 32, 16, 32, 1, 1, 2, 0, false),   CONV(2, 16, 16, 32, 32, 3, 3, 1, 1, false),
    CONV(2, 16, 16, 32, 64, 3, 3, 2, 1, false),   CONV(2, 8, 8, 64, 64, 3, 3, 1, 1, false),
    CONV(3, 25, 27, 3, 64, 3, 3, 1, 1, true), /* few taps: bands with an end, filters in groups, many images
                                               */
    CONV(2, 33, 31, 1, 128, 5, 5, 2, 2, false),   CONV(2, 9, 7, 2, 64, 4, 3, 1, 0, false),
    CONV(300, 5, 5, 3, 64, 3, 3, 1, 1, false),    CONV(2, 12, 9, 32, 64, 1, 1, 1, 0, false),
    CONV(3, 16, 16, 32, 4, 3, 3, 2, 1, false), /* low-rank adapters */
    CONV(3, 8, 8, 4, 64, 1, 1, 1, 0, false),      CONV(2, 8, 8, 64, 1, 3, 3, 1, 1, false),
    CONV(2, 8, 8, 1, 64, 1, 1, 1, 0, false),      CONV(2, 8, 8, 3, 16, 1, 1, 1, 0, false),
    CONV(2, 8, 8, 32, 3, 1, 1, 2, 0, false),      CONV(2, 8, 8, 6, 32, 1, 1, 1, 0, false),
    CONV(2, 8, 8, 16, 6, 3, 3, 1, 1, false),      CONV(16, 4, 4, 64, 128, 3, 3, 1, 1, false),
    CONV(6, 8, 8, 128, 64, 3, 3, 1, 1, false),    CONV(1, 24, 16, 64, 128, 3, 3, 1, 1, false),
    CONV(6, 9, 11, 64, 192, 1, 1, 2, 0, true), /* strided pixels: an end, many blocks, many chunks */
    CONV(40, 15, 17, 64, 64, 1, 1, 3, 0, false),  CONV(10, 15, 16, 512, 512, 1, 1, 2, 0, false),
    CONV(3, 32, 32, 64, 128, 3, 3, 2, 1, false), /* between stages: several images, an end */
    CONV(3, 16, 16, 128, 256, 3, 3, 2, 1, false), CONV(9, 8, 8, 256, 512, 3, 3, 2, 1, false),
};

#define NORM(n, h, w, c, shift)                                                                              \
  { .desc = {.in_count = 1, .in = {T4(n, h, w, c)}, .attr.batchnorm = {1e-5f, false}}, .offset = shift }
#define RUNNING(n, h, w, c, shift)                                                                           \
  { .desc = {.in_count = 1, .in = {T4(n, h, w, c)}, .attr.batchnorm = {1e-5f, true}}, .offset = shift }

static const struct op_case batchnorm_cases[] = {
    NORM(1, 3, 5, 3, 0),      NORM(7, 1, 1, 16, 0.5),     NORM(4, 9, 9, 8, 3),     NORM(3, 7, 7, 64, -0.5),
    NORM(5, 3, 3, 1, 0.1),    NORM(2, 32, 32, 16, 0.25),  NORM(2, 32, 32, 64, 0.), NORM(5, 4, 4, 512, 0.1),
    NORM(9, 40, 41, 64, 0.5), NORM(21, 16, 16, 512, 0.2), /* several rows a thread */
    RUNNING(3, 5, 7, 3, 0.2), RUNNING(4, 9, 9, 16, 0.5),  RUNNING(2, 5, 5, 64, 0),
};

static const struct op_case activation_cases[] = {
#define EACH(name)                                                                                           \
  {.desc = {.in_count = 1, .in = {T4(1, 3, 5, 3)}, .attr.activation = {name}}},                              \
      {.desc = {.in_count = 1, .in = {T4(3, 7, 5, 16)}, .attr.activation = {name}}},                         \
      {.desc = {.in_count = 1, .in = {T2(5, 33)}, .attr.activation = {name}}},                               \
      {.desc = {.in_count = 1, .in = {T4(4, 30, 30, 32)}, .attr.activation = {name}}}, {                     \
    .desc = {.in_count = 1, .in = {T4(3, 16, 16, 128)}, .attr.activation = {name} }                          \
  }
    EACH(ACTIVATION_RELU),
    EACH(ACTIVATION_GELU),
    EACH(ACTIVATION_SILU),
#undef EACH
};

#define ADD(n, h, w, c, factor)                                                                              \
  {                                                                                                          \
    .desc = {.in_count = 2, .in = {T4(n, h, w, c), T4(n, h, w, c)}, .attr.add = {factor} }                   \
  }

static const struct op_case add_cases[] = {
    ADD(1, 3, 5, 3, 1), ADD(3, 7, 7, 16, 1),    ADD(2, 32, 32, 64, 1), ADD(5, 4, 4, 512, 1),
    ADD(1, 1, 1, 1, 1), ADD(3, 5, 5, 3, -1.5f), ADD(2, 8, 8, 16, 4),
};

#define MAXPOOL(n, h, w, c, kernel, stride, tied)                                                            \
  { .desc = {.in_count = 1, .in = {T4(n, h, w, c)}, .attr.maxpool = {kernel, stride}}, .levels = tied }

static const struct op_case maxpool_cases[] = {
    MAXPOOL(1, 4, 4, 3, 2, 2, 0),    MAXPOOL(3, 7, 5, 16, 2, 2, 0), MAXPOOL(2, 7, 9, 5, 3, 2, 0),
    MAXPOOL(2, 6, 6, 8, 2, 1, 0),    MAXPOOL(1, 9, 9, 3, 2, 3, 0),  MAXPOOL(5, 8, 8, 64, 2, 2, 0),
    MAXPOOL(2, 30, 30, 32, 2, 2, 0), /* simplecnn */
    MAXPOOL(3, 8, 8, 16, 2, 2, 2),   MAXPOOL(2, 9, 9, 3, 3, 2, 3),  MAXPOOL(1, 17, 17, 2, 15, 2, 0),
};

#define AVGPOOL(n, h, w, c)                                                                                  \
  {                                                                                                          \
    .desc = {.in_count = 1, .in = {T4(n, h, w, c)} }                                                         \
  }

static const struct op_case avgpool_cases[] = {
    AVGPOOL(1, 3, 5, 3),  AVGPOOL(3, 1, 1, 16), AVGPOOL(5, 4, 4, 512),
    AVGPOOL(3, 8, 8, 64), AVGPOOL(7, 7, 7, 10),
};

static const struct op_case linear_cases[] = {
    {.desc = {.in_count = 1, .in = {T2(1, 7)}, .attr.linear = {5, true}}},
    {.desc = {.in_count = 1, .in = {T4(3, 3, 2, 5)}, .attr.linear = {4, true}}},
    {.desc = {.in_count = 1, .in = {T2(33, 130)}, .attr.linear = {17, true}}},
    {.desc = {.in_count = 1, .in = {T4(4, 15, 15, 32)}, .attr.linear = {10, true}}}, /* simplecnn */
    {.desc = {.in_count = 1, .in = {T4(5, 1, 1, 512)}, .attr.linear = {10, true}}},  /* resnet18 */
    {.desc = {.in_count = 1, .in = {T4(3, 1, 1, 64)}, .attr.linear = {100, true}}},  /* resnet20 */
    {.desc = {.in_count = 1, .in = {T4(128, 1, 1, 64)}, .attr.linear = {10, true}}},
    {.desc = {.in_count = 1, .in = {T2(9, 40)}, .attr.linear = {4, false}}},
    {.desc = {.in_count = 1, .in = {T4(6, 3, 3, 8)}, .attr.linear = {33, false}}},
};

#define XENT(n, classes, smoothing)                                                                          \
  {                                                                                                          \
    .desc = {.in_count = 2, .in = {T2(n, classes), {DTYPE_I32, 1, {n}}}, .attr.softmax_xent = {smoothing} }  \
  }

static const struct op_case softmax_xent_cases[] = {
    XENT(1, 10, 0.f),
    XENT(5, 10, 0.1f),
    XENT(7, 100, 0.f),
    XENT(33, 10, 0.1f),
    XENT(128, 10, 0.f),
    XENT(129, 100, 0.1f),
    XENT(3, 2, 0.f),
    XENT(3, 1000, 0.1f),
    {.desc = {.in_count = 2, .in = {T2(9, 10), {DTYPE_I32, 1, {9}}}, .attr.softmax_xent = {0.f}},
     .levels = 3},
    {.desc = {.in_count = 2, .in = {T2(6, 10), {DTYPE_I32, 1, {6}}}, .attr.softmax_xent = {0.1f}},
     .offset = 200}, /* exp(200) overflows a float */
};

/* input; filters, kernel (square), stride, pad; activation */
#define FUSED(n, h, w, c, k, r, stride, pad, name)                                                           \
  {                                                                                                          \
    .desc = {                                                                                                \
      .in_count = 1,                                                                                         \
      .in = {T4(n, h, w, c)},                                                                                \
      .attr.conv_bn = {{k, r, r, stride, pad, false}, {1e-5f, false}, ACTIVATION_##name}                     \
    }                                                                                                        \
  }
/* the same with a residual, whose height and width are given */
#define RESIDUAL(n, h, w, c, k, r, stride, pad, p, q, name)                                                  \
  {                                                                                                          \
    .desc = {                                                                                                \
      .in_count = 2,                                                                                         \
      .in = {T4(n, h, w, c), T4(n, p, q, k)},                                                                \
      .attr.conv_bn = {{k, r, r, stride, pad, false}, {1e-5f, false}, ACTIVATION_##name}                     \
    }                                                                                                        \
  }

/* either with the running statistics in training */
#define RUNNING_BN(inputs, n, h, w, c, k, r, p, q, name)                                                     \
  {                                                                                                          \
    .desc = {                                                                                                \
      .in_count = (inputs),                                                                                  \
      .in = {T4(n, h, w, c), T4(n, p, q, k)},                                                                \
      .attr.conv_bn = {{k, r, r, 1, r / 2, false}, {1e-5f, true}, ACTIVATION_##name}                         \
    }                                                                                                        \
  }

static const struct op_case conv_bn_cases[] = {
    RUNNING_BN(1, 3, 5, 7, 3, 4, 3, 5, 7, RELU),
    RUNNING_BN(2, 3, 5, 7, 3, 4, 3, 5, 7, RELU),
    RUNNING_BN(1, 3, 5, 5, 3, 4, 3, 5, 5, NONE),
    RUNNING_BN(2, 2, 5, 5, 3, 4, 1, 5, 5, NONE),
    RUNNING_BN(1, 3, 5, 5, 3, 4, 3, 5, 5, SILU),
    RUNNING_BN(2, 3, 5, 5, 3, 4, 3, 5, 5, GELU),
    RUNNING_BN(2, 4, 8, 8, 16, 16, 3, 8, 8, RELU),
    FUSED(1, 5, 7, 3, 4, 3, 1, 0, NONE),
    FUSED(3, 5, 7, 3, 4, 3, 1, 1, RELU),
    FUSED(3, 5, 7, 3, 4, 3, 2, 1, GELU),
    FUSED(3, 5, 7, 3, 4, 3, 1, 1, SILU),
    RESIDUAL(1, 5, 7, 3, 4, 3, 1, 0, 3, 5, NONE),
    RESIDUAL(3, 5, 7, 3, 4, 3, 1, 1, 5, 7, RELU),
    RESIDUAL(3, 5, 7, 3, 4, 3, 2, 1, 3, 4, GELU),
    RESIDUAL(3, 5, 7, 3, 4, 1, 1, 0, 5, 7, SILU),
    FUSED(3, 9, 9, 16, 32, 1, 2, 0, NONE),
    RESIDUAL(5, 8, 8, 16, 16, 3, 1, 1, 8, 8, GELU),
    RESIDUAL(5, 8, 8, 16, 16, 3, 1, 1, 8, 8, NONE),
    FUSED(5, 8, 8, 16, 16, 3, 1, 1, SILU),
    FUSED(3, 5, 5, 16, 7, 1, 1, 0, RELU),
    FUSED(2, 32, 32, 3, 64, 3, 1, 1, RELU), /* resnet18 */
    RESIDUAL(1, 32, 32, 64, 64, 3, 1, 1, 32, 32, RELU),
    FUSED(1, 32, 32, 64, 128, 3, 2, 1, RELU),
    FUSED(2, 16, 16, 128, 256, 1, 2, 0, NONE),
    RESIDUAL(1, 16, 16, 128, 128, 3, 1, 1, 16, 16, RELU),
    RESIDUAL(1, 8, 8, 256, 256, 3, 1, 1, 8, 8, RELU),
    FUSED(2, 8, 8, 256, 512, 3, 2, 1, RELU),
    RESIDUAL(2, 4, 4, 512, 512, 3, 1, 1, 4, 4, RELU),
    FUSED(3, 32, 32, 3, 16, 3, 1, 1, RELU), /* resnet20 */
    RESIDUAL(2, 32, 32, 16, 16, 3, 1, 1, 32, 32, RELU),
    FUSED(2, 32, 32, 16, 32, 3, 2, 1, RELU),
    RESIDUAL(3, 16, 16, 32, 32, 3, 1, 1, 16, 16, RELU),
    RESIDUAL(3, 8, 8, 64, 64, 3, 1, 1, 8, 8, RELU),
    RESIDUAL(24, 16, 16, 8, 512, 1, 1, 0, 16, 16, RELU), /* several rows a thread */
    FUSED(23, 16, 16, 8, 512, 1, 1, 0, RELU),
    FUSED(2, 32, 32, 64, 64, 3, 1, 1, RELU), /* moments of several blocks */
    FUSED(3, 16, 16, 64, 128, 1, 2, 0, NONE),
    FUSED(3, 16, 16, 128, 128, 3, 1, 1, RELU),
    FUSED(3, 25, 27, 3, 64, 3, 1, 1,
          RELU), /* few taps: bands with an end, none; filters in groups, many images */
    FUSED(3, 24, 21, 3, 64, 3, 1, 1, NONE),
    FUSED(2, 33, 31, 1, 128, 5, 2, 2, RELU),
    FUSED(300, 5, 5, 3, 64, 3, 1, 1, RELU),
    FUSED(2, 12, 9, 32, 64, 1, 1, 0, RELU),
    FUSED(3, 9, 9, 3, 64, 3, 1, 1, GELU),
    RUNNING_BN(1, 3, 9, 9, 3, 64, 3, 9, 9, RELU),
    RESIDUAL(3, 9, 9, 3, 64, 3, 1, 1, 9, 9, RELU),
    {.desc = {.in_count = 1, /* means far from zero */
              .in = {T4(3, 12, 12, 3)},
              .attr.conv_bn = {{64, 3, 3, 1, 0, false}, {1e-5f, false}, ACTIVATION_RELU}},
     .offset = 4},
};

/* input; filters, kernel (square), stride, pad, bias; activation; window and its stride */
#define POOLED(n, h, w, c, k, r, stride, pad, bias, name, window, step)                                      \
  {                                                                                                          \
    .desc = {                                                                                                \
      .in_count = 1,                                                                                         \
      .in = {T4(n, h, w, c)},                                                                                \
      .attr.conv_pool = {{k, r, r, stride, pad, bias}, ACTIVATION_##name, {window, step}}                    \
    }                                                                                                        \
  }

static const struct op_case conv_pool_cases[] = {
    POOLED(2, 7, 9, 3, 4, 3, 1, 0, true, RELU, 2, 2),
    POOLED(1, 6, 5, 3, 5, 3, 1, 1, false, RELU, 2, 2),
    POOLED(3, 7, 7, 1, 33, 3, 1, 1, true, NONE, 3, 2),
    POOLED(2, 9, 8, 3, 6, 3, 1, 1, true, RELU, 3, 3),
    POOLED(2, 9, 8, 3, 40, 3, 1, 2, true, NONE, 2, 1),
    POOLED(1, 8, 8, 1, 6, 5, 1, 0, true, RELU, 2, 2),
    POOLED(2, 9, 9, 3, 8, 3, 2, 1, true, RELU, 2, 2),
    POOLED(2, 6, 6, 5, 7, 3, 1, 1, true, RELU, 2, 2),
    POOLED(2, 8, 8, 3, 4, 7, 2, 3, false, RELU, 3, 2),
    POOLED(3, 8, 8, 16, 16, 3, 1, 1, true, NONE, 2, 2),
    POOLED(4, 32, 32, 3, 32, 3, 1, 0, true, RELU, 2, 2),  /* simplecnn */
    POOLED(17, 32, 32, 3, 32, 3, 1, 0, true, RELU, 2, 2), /* in many bands */
    POOLED(2, 28, 28, 1, 32, 5, 1, 2, true, RELU, 2, 2),
    POOLED(1, 96, 64, 3, 64, 3, 1, 1, true, RELU, 3, 2),
    {.desc = {.in_count = 1, /* of zeros: all are equal */
              .in = {T4(2, 8, 8, 3)},
              .attr.conv_pool = {{8, 3, 3, 1, 1, true}, ACTIVATION_RELU, {2, 2}}},
     .levels = 1},
};

struct op_cases op_cases(enum op_kind kind) {
  static const struct op_cases table[] = {
#define OP(NAME, name) [OP_##NAME] = {name##_cases, (int)(sizeof name##_cases / sizeof *name##_cases)},
#include "model/ops/ops.def"
#undef OP
  };
  return table[kind];
}

struct op_desc op_case_desc(const struct op_case *op_case, enum op_kind kind, enum dtype compute,
                            bool training) {
  struct op_desc desc = op_case->desc;
  desc.kind = kind;
  desc.training = training;
  for (int i = 0; i < desc.in_count; i++)
    if (desc.in[i].dtype == DTYPE_F32) desc.in[i].dtype = compute;
  return desc;
}

static int conv_text(const struct conv2d_attr *conv, char *text, size_t capacity) {
  return snprintf(text, capacity, ", %d %dx%d stride %d pad %d%s", conv->filters, conv->kernel_h,
                  conv->kernel_w, conv->stride, conv->pad, conv->bias ? " bias" : "");
}

const char *op_case_text(const struct op_desc *desc, char *text, size_t capacity) {
  char shape[64], more[128] = "";
  tensor_text(&desc->in[0], shape, sizeof shape);
  int used;
  switch (desc->kind) {
  case OP_CONV2D:
    conv_text(&desc->attr.conv2d, more, sizeof more);
    break;
  case OP_ACTIVATION:
    snprintf(more, sizeof more, ", %s", activation_name(desc->attr.activation.kind));
    break;
  case OP_MAXPOOL:
    snprintf(more, sizeof more, ", window %d stride %d", desc->attr.maxpool.kernel,
             desc->attr.maxpool.stride);
    break;
  case OP_LINEAR:
    snprintf(more, sizeof more, ", %d outputs%s", desc->attr.linear.outputs,
             desc->attr.linear.bias ? "" : " without bias");
    break;
  case OP_BATCHNORM:
    snprintf(more, sizeof more, "%s", desc->attr.batchnorm.running ? ", running" : "");
    break;
  case OP_ADD:
    snprintf(more, sizeof more, ", scale %g", (double)desc->attr.add.scale);
    break;
  case OP_SOFTMAX_XENT:
    snprintf(more, sizeof more, ", smoothing %g", (double)desc->attr.softmax_xent.smoothing);
    break;
  case OP_CONV_BN:
    used = conv_text(&desc->attr.conv_bn.conv, more, sizeof more);
    snprintf(more + used, sizeof more - (size_t)used, " %s%s%s",
             activation_name(desc->attr.conv_bn.activation), desc->in_count == 2 ? " residual" : "",
             desc->attr.conv_bn.batchnorm.running ? " running" : "");
    break;
  case OP_CONV_POOL:
    used = conv_text(&desc->attr.conv_pool.conv, more, sizeof more);
    snprintf(more + used, sizeof more - (size_t)used, " %s, window %d stride %d",
             activation_name(desc->attr.conv_pool.activation), desc->attr.conv_pool.maxpool.kernel,
             desc->attr.conv_pool.maxpool.stride);
    break;
  default:
    break;
  }
  snprintf(text, capacity, "%s%s%s", shape, more, desc->training ? "" : ", eval");
  return text;
}
