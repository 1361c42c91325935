/* The CPU backend: oneDNN's engine and stream, this rank's threads, memory, and the table. Work is done when
 * it is enqueued, so there is nothing to wait for. */
#include "model/backend/cpu.h"

#include <dnnl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "model/base/clock.h"
#include "model/base/cores.h"

enum { ALIGNMENT = 256, HUGE_PAGE = 2 << 20 };

/* ---- open and close ---- */

static enum status check_precision(enum precision precision) {
  if (precision == PRECISION_TF32)
    return RAISE(STATUS_INPUT, "--precision tf32 is not available on the CPU; use fp32");
  dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  if (precision == PRECISION_BF16 && (isa & dnnl_cpu_isa_avx512_core_bf16) != dnnl_cpu_isa_avx512_core_bf16)
    return RAISE(STATUS_INPUT,
                 "--precision bf16 is not available on this CPU, which has no AVX512_BF16; use fp32");
  return STATUS_OK;
}

static enum status open_dnnl(struct op_cpu_context *context) {
  dnnl_status_t result = dnnl_engine_create(&context->engine, dnnl_cpu, 0);
  if (result == dnnl_success)
    result = dnnl_stream_create(&context->stream, context->engine, dnnl_stream_default_flags);
  if (result != dnnl_success)
    return RAISE(STATUS_INTERNAL, "oneDNN: no CPU engine or stream (status %d)", (int)result);
  return STATUS_OK;
}

static void cpu_close(struct backend *backend) {
  struct cpu_backend *cpu = cpu_backend(backend);
  if (!cpu) return;
  comm_cpu_close(cpu->comm);
  if (cpu->context.stream) dnnl_stream_destroy(cpu->context.stream);
  if (cpu->context.engine) dnnl_engine_destroy(cpu->context.engine);
  free(cpu);
}

static enum status cpu_open(const struct world *world, const struct backend_options *options,
                            struct backend **backend) {
  enum status status = STATUS_OK;
  const dnnl_version_t *version = dnnl_version();
  struct cpu_backend *cpu = calloc(1, sizeof *cpu);
  status = cpu ? check_precision(options->precision) : RAISE(STATUS_INPUT, "out of memory");
  status = world_agree(world, status); /* hosts may differ */
  if (!cpu || status != STATUS_OK) {
    free(cpu);
    return status;
  }
  struct op_cpu_context *context = &cpu->context;
  cpu->base = (struct backend){.table = &backend_cpu, .world = world, .context = &context->base};
  context->base = (struct op_context){
      .compute = options->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32,
      .deterministic = options->deterministic,
      .workspace_limit = options->workspace_limit > 0 ? options->workspace_limit : (size_t)1 << 30,
  };
  context->threads = options->threads;
  if (context->threads < 1) TRY_OUT(cores_share(world, &context->threads));
#ifdef _OPENMP
  omp_set_num_threads(context->threads);
  omp_set_dynamic(0);
#endif
  TRY_OUT(world_agree(world, open_dnnl(context)));
  double before = clock_seconds();
  TRY_OUT(comm_cpu_open(world, &cpu->comm));
  cpu->base.comm_seconds = clock_seconds() - before;
  snprintf(cpu->base.description, sizeof cpu->base.description, "cpu: oneDNN %d.%d.%d, %d thread%s",
           version->major, version->minor, version->patch, context->threads,
           context->threads == 1 ? "" : "s");
  *backend = &cpu->base;
  cpu = NULL;
out:
  if (cpu) cpu_close(&cpu->base);
  return status;
}

/* ---- memory ---- */

/* Linux grants more memory than there is, or a container may have, and kills the process that touches it. */
static enum status cpu_alloc(struct backend *backend, size_t bytes, void **memory) {
  double most = backend->world->memory_limit;
  if (most <= 0) most = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  size_t rounded = bytes > 0 ? (bytes + alignment - 1) / alignment * alignment : alignment;
  void *made = (double)bytes < most ? aligned_alloc(alignment, rounded) : NULL;
  if (!made)
    return RAISE(STATUS_INPUT,
                 "out of memory: %.1f MB asked for, of %.1f MB that there are; use a smaller --batch",
                 (double)bytes / 1e6, most / 1e6);
  if (alignment == HUGE_PAGE) (void)madvise(made, rounded, MADV_HUGEPAGE); /* fewer TLB misses; only a hint */
  memset(made, 0, rounded);
  *memory = made;
  return STATUS_OK;
}

static void cpu_release(struct backend *backend, void *memory) {
  (void)backend;
  free(memory);
}

static enum status cpu_resident(struct backend *backend, const void *host, size_t bytes,
                                const void **memory) {
  (void)backend, (void)bytes;
  *memory = host;
  return STATUS_OK;
}

static void cpu_release_resident(struct backend *backend, const void *memory) {
  (void)backend, (void)memory;
}

static enum status cpu_copy(struct backend *backend, void *destination, const void *source, size_t bytes) {
  (void)backend;
  if (bytes > 0) memcpy(destination, source, bytes);
  return STATUS_OK;
}

static enum status cpu_zero(struct backend *backend, void *memory, size_t bytes) {
  (void)backend;
  if (bytes > 0) memset(memory, 0, bytes);
  return STATUS_OK;
}

/* ---- order ---- */

static enum status cpu_sync(struct backend *backend) {
  (void)backend;
  return STATUS_OK;
}

static enum status cpu_run(struct backend *backend, struct program **program, enum status (*body)(void *),
                           void *argument, uint64_t *ticket) {
  (void)program;
  TRY(body(argument));
  *ticket = ++cpu_backend(backend)->ticket;
  return STATUS_OK;
}

static enum status cpu_wait(struct backend *backend, uint64_t ticket) {
  (void)backend, (void)ticket;
  return STATUS_OK;
}

static void cpu_program_destroy(struct backend *backend, struct program *program) {
  (void)backend, (void)program;
}

static enum status cpu_stamp(struct backend *backend, int index) {
  cpu_backend(backend)->stamp[index] = clock_seconds();
  return STATUS_OK;
}

static enum status cpu_stamp_seconds(struct backend *backend, int count, double *seconds) {
  const double *stamp = cpu_backend(backend)->stamp;
  for (int i = 0; i < count; i++) seconds[i] = stamp[i + 1] - stamp[i];
  return STATUS_OK;
}

static enum status cpu_allreduce(struct backend *backend, float *data, int64_t count) {
  TRY(comm_cpu_sum(cpu_backend(backend)->comm, data, count));
  return STATUS_OK;
}

/* MPI has no bf16: what a bf16 sum loses is lost here too, but no byte is saved. The sum of rounded numbers
 * is fp32 and then rounded. */
static enum status cpu_allreduce_low(struct backend *backend, float *data, void *low, int64_t count) {
  (void)low;
  if (!cpu_backend(backend)->comm) return STATUS_OK; /* the sum over one rank */
  cpu_round(backend, data, count);
  TRY(cpu_allreduce(backend, data, count));
  cpu_round(backend, data, count);
  return STATUS_OK;
}

static enum status cpu_exchange_add(struct backend *backend, float *data, float *other, int64_t count,
                                    int peer) {
  TRY(comm_cpu_exchange(cpu_backend(backend)->comm, data, other, count, peer));
  return cpu_add(backend, data, other, count);
}

static enum status cpu_broadcast(struct backend *backend, void *data, size_t bytes, int root) {
  TRY(comm_cpu_broadcast(cpu_backend(backend)->comm, data, bytes, root));
  return STATUS_OK;
}

static void cpu_usage(struct backend *backend, struct backend_usage *usage) {
  (void)backend;
  *usage = (struct backend_usage){.busy = NAN};
}

static void cpu_leave(struct backend *backend) {
  (void)backend;
}

/* oneDNN chooses without timing. */
static enum status cpu_choices_get(struct backend *backend, bool fresh, void **bytes, size_t *count) {
  (void)backend, (void)fresh;
  *bytes = NULL;
  *count = 0;
  return STATUS_OK;
}

static enum status cpu_choices_put(struct backend *backend, const void *bytes, size_t count) {
  (void)backend, (void)bytes, (void)count;
  return STATUS_OK;
}

const struct backend_table backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .leave = cpu_leave,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .alloc_host = cpu_alloc,
    .release_host = cpu_release,
    .resident = cpu_resident,
    .release_resident = cpu_release_resident,
    .upload = cpu_copy,
    .download = cpu_copy,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .run = cpu_run,
    .wait = cpu_wait,
    .program_destroy = cpu_program_destroy,
    .stamp = cpu_stamp,
    .stamp_seconds = cpu_stamp_seconds,
    .step_begin = cpu_step_begin,
    .gather = cpu_gather,
    .update = cpu_update,
    .convert = cpu_convert,
    .publish = cpu_publish,
    .allreduce = cpu_allreduce,
    .comm_join = cpu_sync,
    .allreduce_low = cpu_allreduce_low,
    .broadcast = cpu_broadcast,
    .add = cpu_add,
    .exchange_add = cpu_exchange_add,
    .usage = cpu_usage,
    .choices_get = cpu_choices_get,
    .choices_put = cpu_choices_put,
    .ops =
        {
#define OP(NAME, name)                                                                                       \
  [OP_##NAME] = {name##_cpu_create, name##_cpu_forward, name##_cpu_backward, name##_cpu_destroy},
#include "model/ops/ops.def"
#undef OP
        },
};
