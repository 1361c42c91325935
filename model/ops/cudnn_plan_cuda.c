/* Choosing and running cuDNN's convolution plans; see cudnn_plan_cuda.h. The graph that describes a problem
 * to cuDNN is built in cudnn_graph_cuda.c. */
#include "model/ops/cudnn_plan_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/clock.h"
#include "model/base/log.h"
#include "model/ops/cudnn_graph_cuda.h"
#include "model/ops/op_cuda.h"

enum { TIMED = 12 /* plans tried of those that cuDNN proposes */, PROPOSED = 64, TEXT = 160 };

struct cudnn_plan {
  struct conv_problem problem;
  cudnnBackendDescriptor_t plan; /* NULL: there is none */
  size_t workspace;
  float milliseconds;
  bool kept; /* from an earlier start */
  struct cudnn_plan *next;
};

static const char *kind_name(int32_t kind) {
  static const char *const name[] = {"forward", "backward data", "backward filter"};
  return name[kind];
}

static void problem_text(const struct conv_problem *p, char text[TEXT]) {
  snprintf(text, TEXT,
           "convolution %s, %lldx%lldx%lldx%lld %s, %lld filters %lldx%lld, stride %lld, pad %lld",
           kind_name(p->kind), (long long)p->n, (long long)p->h, (long long)p->w, (long long)p->c,
           dtype_name((enum dtype)p->dtype), (long long)p->filters, (long long)p->kernel_h,
           (long long)p->kernel_w, (long long)p->stride, (long long)p->pad);
}

/* May an engine with these properties run in this context? */
static bool allowed(const struct cuda_context *context, const struct conv_problem *problem,
                    cudnnBackendNumericalNote_t note) {
  bool strict = problem->dtype == DTYPE_F32 && !context->op.tf32;
  switch (note) {
  case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    return !context->op.deterministic;
  case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
  case CUDNN_NUMERICAL_NOTE_FFT:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
    return !strict;
  case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    return problem->dtype == DTYPE_F32 && context->op.tf32;
  case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    return false;
  default:
    return true;
  }
}

/* Callers have another way if cuDNN cannot do this. */
static bool optional(const struct conv_problem *problem) {
  return problem->add || problem->result != problem->dtype;
}

static bool config_allowed(const struct cuda_context *context, const struct conv_problem *problem,
                           cudnnBackendDescriptor_t config) {
  cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int count = cudnn_graph_notes(config, note);
  for (int i = 0; i < count; i++)
    if (!allowed(context, problem, note[i])) return false;
  /* The other way is faster to start and, where it was measured, to run. A deterministic context measures
   * nothing, and prefers what is more exact. */
  if (optional(problem) && !context->op.deterministic && cudnn_graph_compiles(config)) return false;
  return count >= 0;
}

/* One candidate on scratch memory. */
struct trial {
  struct cuda_context *context;
  cudnnBackendDescriptor_t plan;
  void *x, *w, *y, *workspace;
};

static bool trial_run(void *argument) {
  struct trial *trial = argument;
  bool done = cudnn_graph_execute(trial->context->cudnn, trial->plan, trial->x, trial->w, trial->y,
                                  trial->workspace) == CUDNN_STATUS_SUCCESS;
  if (!done) (void)cudaGetLastError();
  return done;
}

static size_t type_bytes(const struct conv_problem *problem, enum conv_kind made) {
  return dtype_bytes((enum dtype)((enum conv_kind)problem->kind == made ? problem->result : problem->dtype));
}

/* Lays x, w, y and a workspace out in scratch memory. */
static enum status trial_memory(struct trial *trial, const struct conv_problem *p, size_t workspace) {
  size_t x = cuda_align((size_t)(p->n * p->h * p->w * p->c) * type_bytes(p, CONV_BACKWARD_DATA));
  size_t w = cuda_align((size_t)(p->filters * p->kernel_h * p->kernel_w * p->c) *
                        type_bytes(p, CONV_BACKWARD_FILTER));
  size_t y = cuda_align((size_t)(p->n * p->out_h * p->out_w * p->filters) * type_bytes(p, CONV_FORWARD));
  TRY(cuda_scratch(trial->context, (enum dtype)p->dtype, x + w + y + cuda_align(workspace), &trial->x));
  trial->w = cuda_offset(trial->x, x);
  trial->y = cuda_offset(trial->w, w);
  trial->workspace = cuda_offset(trial->y, y);
  return STATUS_OK;
}

/* The plans that cuDNN proposes, the preferred first, and that may be used. *count of them are then the
 * caller's. */
static enum status propose(struct cuda_context *context, const struct conv_problem *problem,
                           cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t plan[TIMED],
                           size_t workspace[TIMED], int *count) {
  static const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  int most = context->op.deterministic ? 1 : TIMED;
  *count = 0;
  for (size_t m = 0; m < sizeof mode / sizeof *mode && *count < most; m++) {
    cudnnBackendDescriptor_t config[PROPOSED];
    int configs = cudnn_graph_configs(graph, mode[m], config, PROPOSED);
    for (int i = 0; i < configs; i++) {
      int64_t bytes;
      if (*count < most && config_allowed(context, problem, config[i])) {
        cudnnBackendDescriptor_t candidate = cudnn_graph_plan(context->cudnn, config[i], &bytes);
        if (candidate && (uint64_t)bytes <= context->op.workspace_limit) {
          /* Whether it runs at all shows only when it runs: in a deterministic context the first that does
           * wins. */
          struct trial trial = {.context = context, .plan = candidate};
          bool runs = true;
          if (most == 1) {
            enum status status = trial_memory(&trial, problem, (size_t)bytes);
            if (status != STATUS_OK) {
              cudnn_graph_destroy(candidate);
              for (; i < configs; i++) cudnn_graph_destroy(config[i]);
              return error_trace(status, __func__);
            }
            runs = trial_run(&trial);
          }
          if (runs) {
            workspace[*count] = (size_t)bytes;
            plan[(*count)++] = candidate;
            candidate = NULL;
          }
        }
        cudnn_graph_destroy(candidate);
      }
      cudnn_graph_destroy(config[i]);
    }
  }
  return STATUS_OK;
}

/* Index of the fastest of plan[count], -1 if none runs. */
static enum status fastest(struct cuda_context *context, const struct conv_problem *problem,
                           const cudnnBackendDescriptor_t plan[TIMED], const size_t workspace[TIMED],
                           int count, int *best, float *milliseconds) {
  size_t most = 0;
  struct trial trial = {.context = context};
  *best = -1;
  *milliseconds = 0;
  for (int i = 0; i < count; i++)
    if (workspace[i] > most) most = workspace[i];
  TRY(trial_memory(&trial, problem, most));
  for (int i = 0; i < count; i++) {
    float time;
    trial.plan = plan[i];
    TRY(cuda_time(context, trial_run, &trial, *milliseconds, &time));
    if (time >= 0 && (*best < 0 || time < *milliseconds)) {
      *best = i;
      *milliseconds = time;
    }
  }
  return STATUS_OK;
}

static enum status choose(struct cuda_context *context, struct cudnn_plan *found) {
  const struct conv_problem *problem = &found->problem;
  enum status status = STATUS_OK;
  cudnnBackendDescriptor_t plan[TIMED] = {NULL}, graph = NULL;
  size_t workspace[TIMED];
  int count = 0, best = 0;
  const double begun = clock_seconds();
  cudnnStatus_t error = cudnn_graph_create(context->cudnn, problem, &graph);
  if (error != CUDNN_STATUS_SUCCESS && !optional(problem))
    return cuda_raise_cudnn(__func__, "the operation graph of a convolution", error);
  if (graph) TRY_OUT(propose(context, problem, graph, plan, workspace, &count));
  const double proposed = clock_seconds();
  if (count > 0 && !context->op.deterministic)
    TRY_OUT(fastest(context, problem, plan, workspace, count, &best, &found->milliseconds));
  if (count > 0 && best >= 0) {
    found->plan = plan[best];
    found->workspace = workspace[best];
    plan[best] = NULL;
  }
  if (getenv("CONVOY_PLANS")) {
    char text[TEXT];
    problem_text(problem, text);
    log_info("plan: %s%s -> %s: %d candidates, number %d, %.4f ms, %zu bytes of workspace; made in %.4f s, "
             "timed in %.4f",
             text, problem->add ? ", added" : "", dtype_name((enum dtype)problem->result), count,
             found->plan ? best : -1, (double)found->milliseconds, found->workspace, proposed - begun,
             clock_seconds() - proposed);
  }
out:
  for (int i = 0; i < count; i++) cudnn_graph_destroy(plan[i]);
  cudnn_graph_destroy(graph);
  return status;
}

/* ---- choices of earlier starts ---- */

/* How a choice begins; the plan's text follows. */
struct remembered {
  uint64_t found; /* 0: cuDNN has no plan for this problem, and there is no text */
  double milliseconds;
};

static struct choice_key key_of(const struct conv_problem *problem) {
  return (struct choice_key){.kind = CUDA_CHOICE_PLAN, .data = problem, .bytes = sizeof *problem};
}

/* Takes the plan of an earlier start; false: there is none, or it is of no use. */
static bool recall(struct cuda_context *context, struct cudnn_plan *found) {
  struct remembered head;
  size_t bytes;
  int64_t workspace = 0;
  const char *value = choices_find(&context->choices, key_of(&found->problem), &bytes);
  if (!value || context->op.deterministic || bytes < sizeof head) return false;
  memcpy(&head, value, sizeof head);
  if (head.found) {
    found->plan =
        cudnn_graph_plan_of_text(context->cudnn, value + sizeof head, bytes - sizeof head, &workspace);
    if (found->plan && (uint64_t)workspace > context->op.workspace_limit) {
      cudnn_graph_destroy(found->plan);
      found->plan = NULL;
    }
    if (!found->plan) return false;
  }
  found->workspace = (size_t)workspace;
  found->milliseconds = (float)head.milliseconds;
  found->kept = true;
  return true;
}

/* Keeps what was chosen. A plan that has no text is chosen again at each start. */
static enum status remember(struct cuda_context *context, const struct cudnn_plan *found) {
  struct remembered head = {.found = found->plan != NULL, .milliseconds = (double)found->milliseconds};
  char *text = NULL;
  size_t bytes = 0;
  if (context->op.deterministic || choices_find(&context->choices, key_of(&found->problem), &bytes))
    return STATUS_OK;
  bytes = 0;
  if (found->plan) cudnn_graph_plan_text(found->plan, &text, &bytes);
  if (found->plan && !text) return STATUS_OK;
  enum status status =
      choices_add(&context->choices, key_of(&found->problem), &head, sizeof head, text, bytes);
  free(text);
  return status;
}

static enum status find(struct cuda_context *context, struct cudnn_plan *found) {
  if (recall(context, found)) return STATUS_OK;
  TRY(choose(context, found));
  enum status status = remember(context, found);
  if (status != STATUS_OK) cudnn_graph_destroy(found->plan);
  return status;
}

enum status cudnn_plan_find(struct cuda_context *context, const struct conv_problem *problem,
                            const struct cudnn_plan **plan) {
  struct cudnn_plan *found = context->plans;
  while (found && memcmp(&found->problem, problem, sizeof *problem) != 0) found = found->next;
  if (!found) {
    found = calloc(1, sizeof *found);
    if (!found) return RAISE(STATUS_INPUT, "out of memory");
    found->problem = *problem;
    enum status status = find(context, found);
    if (status != STATUS_OK) {
      free(found);
      return error_trace(status, __func__);
    }
    found->next = context->plans;
    context->plans = found;
  }
  if (!found->plan && !optional(problem)) {
    char text[TEXT];
    problem_text(problem, text);
    return RAISE(STATUS_INTERNAL, "cuDNN %zu has no engine for %s%s%s within %zu bytes of workspace",
                 cudnnGetVersion(), text,
                 context->op.tf32 || problem->dtype != DTYPE_F32 ? "" : ", without tensor cores",
                 context->op.deterministic ? ", deterministic" : "", context->op.workspace_limit);
  }
  *plan = found->plan ? found : NULL;
  return STATUS_OK;
}

size_t cudnn_plan_workspace(const struct cudnn_plan *plan) {
  return plan ? plan->workspace : 0;
}

float cudnn_plan_milliseconds(const struct cudnn_plan *plan) {
  return plan->milliseconds;
}

bool cudnn_plan_kept(const struct cudnn_plan *plan) {
  return plan->kept;
}

enum status cudnn_plan_run(struct cuda_context *context, const struct cudnn_plan *plan, void *x, void *w,
                           void *y, void *workspace) {
  if (((uintptr_t)x | (uintptr_t)w | (uintptr_t)y) & 15)
    return RAISE(STATUS_INTERNAL, "a tensor of a convolution is not aligned to 16 bytes");
  TRY_CUDNN(cudnn_graph_execute(context->cudnn, plan->plan, x, w, y, workspace));
  return STATUS_OK;
}

void cudnn_plans_destroy(struct cuda_context *context) {
  while (context->plans) {
    struct cudnn_plan *next = context->plans->next;
    cudnn_graph_destroy(context->plans->plan);
    free(context->plans);
    context->plans = next;
  }
}
