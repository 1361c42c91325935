/* Matrix products; see blas_cuda.h. cuBLASLt counts columns first: a row-major c = a b is its c' = b' a', so
 * our b is its A, our a its B, and the leading dimension is a row's length. */
#include "model/ops/blas_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/log.h"
#include "model/ops/op_cuda.h"

enum { PROPOSED = 8 };

struct blas_product {
  const struct blas_library *blas; /* the context's */
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c; /* ours */
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace;
};

static cudaDataType_t data_type(enum dtype dtype) {
  return dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasOperation_t operation(bool transposed) {
  return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

void blas_product_destroy(struct blas_product *product) {
  if (!product) return;
  if (product->operation) product->blas->operation_destroy(product->operation);
  if (product->a) product->blas->layout_destroy(product->a);
  if (product->b) product->blas->layout_destroy(product->b);
  if (product->c) product->blas->layout_destroy(product->c);
  free(product);
}

static enum status describe(const struct cuda_context *context, const struct blas_problem *p,
                            struct blas_product *product) {
  const struct blas_library *blas = product->blas;
  cublasComputeType_t compute =
      p->dtype == DTYPE_F32 && context->op.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasOperation_t first = operation(p->b_transposed), second = operation(p->a_transposed);
  TRY_BLAS(blas, operation_create, &product->operation, compute, CUDA_R_32F);
  TRY_BLAS(blas, operation_set, product->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  TRY_BLAS(blas, operation_set, product->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  uint64_t b_row = (uint64_t)(p->b_transposed ? p->k : p->n),
           b_rows = (uint64_t)(p->b_transposed ? p->n : p->k);
  uint64_t a_row = (uint64_t)(p->a_transposed ? p->m : p->k),
           a_rows = (uint64_t)(p->a_transposed ? p->k : p->m);
  TRY_BLAS(blas, layout_create, &product->b, data_type(p->dtype), b_row, b_rows, (int64_t)b_row);
  TRY_BLAS(blas, layout_create, &product->a, data_type(p->dtype), a_row, a_rows, (int64_t)a_row);
  TRY_BLAS(blas, layout_create, &product->c, data_type(p->result), (uint64_t)p->n, (uint64_t)p->m, p->n);
  return STATUS_OK;
}

static enum status propose(struct cuda_context *context, const struct blas_problem *p,
                           const struct blas_product *product, cublasLtMatmulHeuristicResult_t *result,
                           int *count) {
  const struct blas_library *blas = product->blas;
  cublasLtMatmulPreference_t preference = NULL;
  uint64_t workspace = context->op.workspace_limit, wanted = ~(uint64_t)0;
  uint32_t alignment = 16;
  if (p->dtype == DTYPE_F32 && !context->op.tf32) /* fp32 must not pass through the tensor cores */
    wanted &= ~(uint64_t)CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK;
  enum status status = STATUS_OK;
  cublasStatus_t error = blas->preference_create(&preference);
  const cublasLtMatmulPreferenceAttributes_t aligned[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  for (int i = 0; i < 4 && error == CUBLAS_STATUS_SUCCESS; i++)
    error = blas->preference_set(preference, aligned[i], &alignment, sizeof alignment);
  if (error == CUBLAS_STATUS_SUCCESS)
    error = blas->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                 sizeof workspace);
  if (error == CUBLAS_STATUS_SUCCESS)
    error = blas->preference_set(preference, CUBLASLT_MATMUL_PREF_IMPL_MASK, &wanted, sizeof wanted);
  if (error == CUBLAS_STATUS_SUCCESS)
    error = blas->propose(blas->handle, product->operation, product->b, product->a, product->c, product->c,
                          preference, PROPOSED, result, count);
  if (error != CUBLAS_STATUS_SUCCESS || *count == 0)
    status = RAISE(STATUS_INTERNAL, "cuBLASLt %zu has no algorithm for a %lldx%lldx%lld product of %s: %s",
                   blas->version(), (long long)p->m, (long long)p->n, (long long)p->k, dtype_name(p->dtype),
                   blas->status_text(error));
  if (preference) blas->preference_destroy(preference);
  return status;
}

struct trial {
  struct cuda_context *context;
  const struct blas_product *product;
  const void *a, *b;
  void *c, *workspace;
};

static cublasStatus_t execute(struct cuda_context *context, const struct blas_product *product, const void *a,
                              const void *b, void *c, bool add, void *workspace) {
  const float alpha = 1, beta = add ? 1 : 0;
  return product->blas->matmul(product->blas->handle, product->operation, &alpha, b, product->b, a,
                               product->a, &beta, c, product->c, c, product->c, &product->algorithm,
                               workspace, product->workspace, context->stream);
}

static bool trial_run(void *argument) {
  struct trial *trial = argument;
  bool done = execute(trial->context, trial->product, trial->a, trial->b, trial->c, false,
                      trial->workspace) == CUBLAS_STATUS_SUCCESS;
  if (!done) (void)cudaGetLastError();
  return done;
}

/* Takes the fastest of the proposals, in a deterministic context the first that runs. */
static enum status choose(struct cuda_context *context, const struct blas_problem *p,
                          struct blas_product *product, const cublasLtMatmulHeuristicResult_t *result,
                          int count) {
  size_t most = 0, a = cuda_align((size_t)(p->m * p->k) * dtype_bytes(p->dtype));
  size_t b = cuda_align((size_t)(p->k * p->n) * dtype_bytes(p->dtype));
  size_t c = cuda_align((size_t)(p->m * p->n) * dtype_bytes(p->result));
  struct trial trial = {.context = context, .product = product};
  void *memory;
  int best = -1;
  float least = 0;
  for (int i = 0; i < count; i++)
    if (result[i].workspaceSize > most) most = result[i].workspaceSize;
  TRY(cuda_scratch(context, p->dtype, a + b + c + most, &memory));
  trial.a = memory;
  trial.b = cuda_offset(memory, a);
  trial.c = cuda_offset(memory, a + b);
  trial.workspace = cuda_offset(memory, a + b + c);
  for (int i = 0; i < count && !(context->op.deterministic && best >= 0); i++) {
    float time;
    if (result[i].state != CUBLAS_STATUS_SUCCESS) continue;
    product->algorithm = result[i].algo;
    product->workspace = result[i].workspaceSize;
    TRY(cuda_time(context, trial_run, &trial, least, &time));
    if (time >= 0 && (best < 0 || time < least)) {
      best = i;
      least = time;
    }
  }
  if (best < 0)
    return RAISE(STATUS_INTERNAL, "cuBLASLt: none of %d algorithms runs a %lldx%lldx%lld product of %s",
                 count, (long long)p->m, (long long)p->n, (long long)p->k, dtype_name(p->dtype));
  product->algorithm = result[best].algo;
  product->workspace = result[best].workspaceSize;
  if (getenv("CONVOY_PLANS"))
    log_info("product: %lldx%lldx%lld %s -> %s: %d candidates, number %d, %.4f ms", (long long)p->m,
             (long long)p->n, (long long)p->k, dtype_name(p->dtype), dtype_name(p->result), count, best,
             (double)least);
  return STATUS_OK;
}

/* ---- choices of earlier starts ---- */

/* An algorithm is plain data, valid for one version of cuBLASLt on one kind of device. */
struct remembered {
  uint64_t workspace;
  cublasLtMatmulAlgo_t algorithm;
};

/* A problem and the library's version, without the gaps that a struct of several types has. */
struct problem_key {
  int64_t number[8];
};

static struct problem_key key_of(const struct blas_library *blas, const struct blas_problem *p) {
  return (struct problem_key){
      {(int64_t)blas->version(), p->dtype, p->result, p->m, p->n, p->k, p->a_transposed, p->b_transposed}};
}

static struct choice_key choice_key(const struct problem_key *key) {
  return (struct choice_key){.kind = CUDA_CHOICE_PRODUCT, .data = key, .bytes = sizeof *key};
}

/* Takes the algorithm of an earlier start; false: there is none, or it does not run here. */
static bool recall(struct cuda_context *context, const struct problem_key *key,
                   struct blas_product *product) {
  struct remembered value;
  cublasLtMatmulHeuristicResult_t result;
  size_t bytes;
  const void *known = choices_find(&context->choices, choice_key(key), &bytes);
  if (!known || context->op.deterministic || bytes != sizeof value) return false;
  memcpy(&value, known, sizeof value);
  memset(&result, 0, sizeof result);
  const struct blas_library *blas = product->blas;
  if (blas->check(blas->handle, product->operation, product->b, product->a, product->c, product->c,
                  &value.algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > context->op.workspace_limit || result.workspaceSize > value.workspace)
    return false;
  product->algorithm = value.algorithm;
  product->workspace = (size_t)value.workspace;
  return true;
}

static enum status remember(struct cuda_context *context, const struct problem_key *key,
                            const struct blas_product *product) {
  struct remembered value;
  size_t bytes;
  if (context->op.deterministic || choices_find(&context->choices, choice_key(key), &bytes)) return STATUS_OK;
  memset(&value, 0, sizeof value);
  value.workspace = product->workspace;
  value.algorithm = product->algorithm;
  return choices_add(&context->choices, choice_key(key), &value, sizeof value, NULL, 0);
}

enum status blas_product_create(struct cuda_context *context, const struct blas_problem *problem,
                                struct blas_product **product, size_t *workspace) {
  cublasLtMatmulHeuristicResult_t result[PROPOSED];
  enum status status = STATUS_OK;
  int count = 0;
  struct blas_product *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  memset(result, 0, sizeof result);
  made->blas = &context->blas;
  TRY_OUT(blas_library_open(&context->blas));
  TRY_OUT(describe(context, problem, made));
  struct problem_key key = key_of(&context->blas, problem);
  if (!recall(context, &key, made)) {
    TRY_OUT(propose(context, problem, made, result, &count));
    TRY_OUT(choose(context, problem, made, result, count));
    TRY_OUT(remember(context, &key, made));
  }
  *product = made;
  *workspace = made->workspace;
out:
  if (status != STATUS_OK) blas_product_destroy(made);
  return status;
}

enum status blas_product_run(struct cuda_context *context, const struct blas_product *product, const void *a,
                             const void *b, void *c, bool add, void *workspace) {
  cublasStatus_t error = execute(context, product, a, b, c, add, workspace);
  return error == CUBLAS_STATUS_SUCCESS ? STATUS_OK : blas_raise(product->blas, __func__, "matmul", error);
}
