/* Loading cuBLASLt; see blas_library_cuda.h. */
#include "model/ops/blas_library_cuda.h"

#include <dlfcn.h>
#include <stddef.h>

#include "model/base/symbol.h"

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
#define LIBRARY "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

enum status blas_raise(const struct blas_library *blas, const char *function, const char *call,
                       cublasStatus_t error) {
  return error_raise(STATUS_INTERNAL, function, "cuBLASLt: %s at %s", blas->status_text(error), call);
}

enum status blas_library_load(struct blas_library *blas) {
  const char *missing = NULL;
  if (blas->library) return STATUS_OK;
  struct blas_library made = {.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)};
  if (!made.library)
    return RAISE(STATUS_INPUT,
                 "%s, cuBLAS of the CUDA toolkit, cannot be loaded: %s: install it, or name its folder in "
                 "LD_LIBRARY_PATH",
                 LIBRARY, dlerror());
#define FIND(name, theirs)                                                                                   \
  if (!symbol_find(made.library, "cublasLt" #theirs, &made.name)) missing = "cublasLt" #theirs;
  BLAS_FUNCTIONS(FIND)
#undef FIND
  if (missing) {
    dlclose(made.library);
    return RAISE(STATUS_INPUT, "%s has no %s: it is not of the CUDA toolkit that this program was built with",
                 LIBRARY, missing);
  }
  *blas = made;
  return STATUS_OK;
}

enum status blas_library_open(struct blas_library *blas) {
  TRY(blas_library_load(blas));
  if (!blas->handle) TRY_BLAS(blas, create, &blas->handle);
  return STATUS_OK;
}

void blas_library_close(struct blas_library *blas) {
  if (blas->handle) blas->destroy(blas->handle);
  blas->handle = NULL; /* the library stays: what it registered is the runtime's until the process ends */
}
