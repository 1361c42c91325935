/* Matrix products by cuBLASLt, with the algorithm chosen at create. */
#ifndef CONVOY_MODEL_OPS_BLAS_CUDA_H
#define CONVOY_MODEL_OPS_BLAS_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ops/op.h"

struct cuda_context;
struct blas_product;

/* c (m,n) = op(a) op(b) in row-major order: a is (m,k), or (k,m) if a_transposed; b is (k,n), or (n,k) if
 * b_transposed. */
struct blas_problem {
  enum dtype dtype;  /* of a and b, fp32 or bf16 */
  enum dtype result; /* of c */
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};

/* *product is owned by the caller; *workspace in bytes. Sums are fp32; fp32 products are exact fp32, or tf32
 * if the context allows it. */
enum status blas_product_create(struct cuda_context *context, const struct blas_problem *problem,
                                struct blas_product **product, size_t *workspace);
void blas_product_destroy(struct blas_product *product); /* NULL: nothing */

/* Enqueues c = a b, or c += a b if `add`. */
enum status blas_product_run(struct cuda_context *context, const struct blas_product *product, const void *a,
                             const void *b, void *c, bool add, void *workspace);

#endif
