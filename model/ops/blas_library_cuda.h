/* cuBLASLt, loaded when the first product asks for it: to load it takes 0.1 s and reads 250 MB, and most
 * models have no product that is its. */
#ifndef CONVOY_MODEL_OPS_BLAS_LIBRARY_CUDA_H
#define CONVOY_MODEL_OPS_BLAS_LIBRARY_CUDA_H

#include <cublasLt.h>

#include "model/base/error.h"

/* X(our name, cublasLt's name) for each function that is used. */
#define BLAS_FUNCTIONS(X)                                                                                    \
  X(create, Create)                                                                                          \
  X(destroy, Destroy)                                                                                        \
  X(version, GetVersion)                                                                                     \
  X(status_text, GetStatusString)                                                                            \
  X(operation_create, MatmulDescCreate)                                                                      \
  X(operation_set, MatmulDescSetAttribute)                                                                   \
  X(operation_destroy, MatmulDescDestroy)                                                                    \
  X(layout_create, MatrixLayoutCreate)                                                                       \
  X(layout_destroy, MatrixLayoutDestroy)                                                                     \
  X(preference_create, MatmulPreferenceCreate)                                                               \
  X(preference_set, MatmulPreferenceSetAttribute)                                                            \
  X(preference_destroy, MatmulPreferenceDestroy)                                                             \
  X(propose, MatmulAlgoGetHeuristic)                                                                         \
  X(check, MatmulAlgoCheck)                                                                                  \
  X(matmul, Matmul)

struct blas_library {
  void *library; /* NULL: not loaded */
  cublasLtHandle_t handle;
#define BLAS_MEMBER(name, theirs) __typeof__(cublasLt##theirs) *name;
  BLAS_FUNCTIONS(BLAS_MEMBER)
#undef BLAS_MEMBER
};

/* Finds the library by the name of the version compiled with, as the dynamic linker would; a second call does
 * nothing. STATUS_INPUT: it is not there, or lacks a function. */
enum status blas_library_load(struct blas_library *blas);

/* Loads it and makes a handle on the current device; a second call does nothing. */
enum status blas_library_open(struct blas_library *blas);
void blas_library_close(struct blas_library *blas); /* not open: nothing */

/* Records the error of a call (its text, the library's message) and returns STATUS_INTERNAL. */
enum status blas_raise(const struct blas_library *blas, const char *function, const char *call,
                       cublasStatus_t error);

#define TRY_BLAS(blas, function, ...)                                                                        \
  do {                                                                                                       \
    cublasStatus_t blas_error = (blas)->function(__VA_ARGS__);                                               \
    if (blas_error != CUBLAS_STATUS_SUCCESS) return blas_raise(blas, __func__, #function, blas_error);       \
  } while (0)

#endif
