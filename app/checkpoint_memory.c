/* The core driver's callbacks for its memory; see checkpoint_format.h and H5Pset_file_image_callbacks. */
#include "app/checkpoint_format.h"

#include <hdf5.h>
#include <sys/mman.h>

/* One mapping, in large pages where the kernel has them: touching 90 MB in small ones takes as long as
 * copying them. */
static void *grow(void *former, size_t bytes, H5FD_file_image_op_t operation, void *argument) {
  struct checkpoint_memory *memory = argument;
  (void)former, (void)operation;
  if (bytes <= memory->capacity) return memory->data;
  void *larger = memory->data ? mremap(memory->data, memory->capacity, bytes, MREMAP_MAYMOVE)
                              : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (larger == MAP_FAILED) return NULL;
  (void)madvise(larger, bytes, MADV_HUGEPAGE); /* only a hint */
  memory->data = larger;
  memory->capacity = bytes;
  return larger;
}

static void *take(size_t bytes, H5FD_file_image_op_t operation, void *argument) {
  return grow(NULL, bytes, operation, argument);
}

/* The memory is its user's: it stays when HDF5 closes the file. */
static herr_t keep(void *memory, H5FD_file_image_op_t operation, void *argument) {
  (void)memory, (void)operation, (void)argument;
  return 0;
}

static void *same(void *argument) {
  return argument;
}
static herr_t leave(void *argument) {
  (void)argument;
  return 0;
}

bool checkpoint_memory_use(struct checkpoint_memory *memory, size_t step, int64_t access) {
  H5FD_file_image_callbacks_t callbacks = {.image_malloc = take,
                                           .image_realloc = grow,
                                           .image_free = keep,
                                           .udata_copy = same,
                                           .udata_free = leave,
                                           .udata = memory};
  return H5Pset_fapl_core(access, step, 0) >= 0 && H5Pset_file_image_callbacks(access, &callbacks) >= 0;
}

void checkpoint_memory_free(struct checkpoint_memory *memory) {
  if (memory->data) munmap(memory->data, memory->capacity);
  *memory = (struct checkpoint_memory){0};
}
