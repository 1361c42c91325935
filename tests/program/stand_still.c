/* Preloaded into a job, makes one rank's main thread stand still for ever, while its other threads go on:
 * rank STAND_RANK of Open MPI, in its STAND_AT-th call of a oneDNN primitive. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int execute_function(const void *primitive, void *stream, int count, const void *arguments);

execute_function dnnl_primitive_execute; /* as dnnl.h declares it, but for the types' names */

int dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *arguments) {
  static int calls;
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *wanted = getenv("STAND_RANK"), *at = getenv("STAND_AT");
  if (rank && wanted && at && strcmp(rank, wanted) == 0 && ++calls == atoi(at))
    for (;;) pause();
  execute_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
  return next(primitive, stream, count, arguments);
}
