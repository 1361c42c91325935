/* Convolutions by cuDNN's graph API: for a problem, the plan that runs it fastest.
 *
 * Tensors are N,H,W,C and filters K,R,S,C in memory. Sums are fp32. Candidates come from cuDNN's heuristics,
 * are filtered by what the precision allows and by determinism, and the first few that work are timed on
 * random data; deterministic contexts take the first that works. Plans are kept in the context: an equal
 * problem is tuned once. */
#ifndef CONVOY_MODEL_OPS_CUDNN_PLAN_CUDA_H
#define CONVOY_MODEL_OPS_CUDNN_PLAN_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ops/op.h"

struct cuda_context;
struct cudnn_plan;

enum conv_kind {
  CONV_FORWARD,         /* y from x and w */
  CONV_BACKWARD_DATA,   /* x from w and y */
  CONV_BACKWARD_FILTER, /* w from x and y */
};

/* All members are compared as bytes: clear it before filling it in. */
struct conv_problem {
  int32_t kind;   /* enum conv_kind */
  int32_t dtype;  /* of what is read, fp32 or bf16 */
  int32_t result; /* dtype of what is written */
  int32_t add;    /* 1: the result is added to what is there */
  int64_t n, h, w, c;
  int64_t filters, kernel_h, kernel_w, out_h, out_w;
  int64_t stride, pad;
};

/* *plan stays the context's. NULL: cuDNN has none for this problem (only `add` and a `result` unlike dtype
 * are optional in this way; without them that is an error that names the problem). Not during a step. */
enum status cudnn_plan_find(struct cuda_context *context, const struct conv_problem *problem,
                            const struct cudnn_plan **plan);

size_t cudnn_plan_workspace(const struct cudnn_plan *plan);   /* bytes */
float cudnn_plan_milliseconds(const struct cudnn_plan *plan); /* as timed; 0 if it was not */

/* It comes from an earlier start's choices. */
bool cudnn_plan_kept(const struct cudnn_plan *plan);

/* Enqueues it; x, w and y are all aligned to 16 bytes. The one that the kind makes is written. */
enum status cudnn_plan_run(struct cuda_context *context, const struct cudnn_plan *plan, void *x, void *w,
                           void *y, void *workspace);

/* Destroys all plans of the context. */
void cudnn_plans_destroy(struct cuda_context *context);

#endif
