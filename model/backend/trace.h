/* Named ranges of the host's work for a profiler (NVTX, shown by Nsight Systems). Without a profiler a range
 * is two calls that return at once; in a program without the CUDA backend nothing. Ranges nest within a
 * thread. */
#ifndef CONVOY_MODEL_BACKEND_TRACE_H
#define CONVOY_MODEL_BACKEND_TRACE_H

#include "model/base/error.h"

#ifdef CONVOY_CUDA
void trace_begin(const char *name);
void trace_end(void);
#else
static inline void trace_begin(const char *name) {
  (void)name;
}
static inline void trace_end(void) {}
#endif

static inline enum status trace_ended(enum status status) {
  trace_end();
  return status;
}

/* The status of `call`, which is the range. */
#define TRACE(name, call) (trace_begin(name), trace_ended(call))

#endif
