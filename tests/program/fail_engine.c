/* Preloaded into a job, makes oneDNN refuse its engine on rank FAIL_RANK of Open MPI. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef int create_function(void **engine, int kind, size_t index);

create_function dnnl_engine_create; /* as dnnl.h declares it, but for the types' names */

int dnnl_engine_create(void **engine, int kind, size_t index) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *wanted = getenv("FAIL_RANK");
  if (rank && wanted && strcmp(rank, wanted) == 0) return 1; /* dnnl_out_of_memory */
  create_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "dnnl_engine_create");
  return next(engine, kind, index);
}
