/* The table of definitions; see reference.h. */
#include "tests/reference/reference.h"

#include <stdio.h>
#include <stdlib.h>

typedef void definition(const struct op_desc *, const struct reference_io *);

void reference_forward(const struct op_desc *desc, const struct reference_io *io) {
  static definition *const forward[] = {
#define OP(NAME, name) [OP_##NAME] = reference_##name##_forward,
#include "model/ops/ops.def"
#undef OP
  };
  forward[desc->kind](desc, io);
}

void reference_backward(const struct op_desc *desc, const struct reference_io *io) {
  static definition *const backward[] = {
#define OP(NAME, name) [OP_##NAME] = reference_##name##_backward,
#include "model/ops/ops.def"
#undef OP
  };
  backward[desc->kind](desc, io);
}

double *reference_array(int64_t count) {
  double *array = calloc((size_t)count + 1, sizeof *array);
  if (array) return array;
  fprintf(stderr, "no memory for %lld doubles\n", (long long)count);
  abort();
}
