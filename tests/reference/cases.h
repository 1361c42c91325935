/* The shapes on which every op is tested: small and odd ones, and the models' own. One table serves the
 * finite differences and the backends. */
#ifndef CONVOY_TESTS_REFERENCE_CASES_H
#define CONVOY_TESTS_REFERENCE_CASES_H

#include "model/ops/op.h"

struct op_case {
  struct op_desc
      desc;      /* kind, inputs as fp32 (labels int32), attributes; set kind and training by op_case_desc */
  double offset; /* added to in[0], whose values are otherwise of mean 0 and variance 1 */
  int levels;    /* in[0] takes only the values 0..levels-1, so that there are ties; 0: any */
};

struct op_cases {
  const struct op_case *item;
  int count;
};

/* All cases of an op. It comes from a table over ops.def: an op without cases does not compile. */
struct op_cases op_cases(enum op_kind kind);

/* The case's description in a compute type. */
struct op_desc op_case_desc(const struct op_case *op_case, enum op_kind kind, enum dtype compute,
                            bool training);

/* Writes e.g. "2x8x8x16 fp32, 16 3x3 stride 1 pad 1 relu residual" and returns text. */
const char *op_case_text(const struct op_desc *desc, char *text, size_t capacity);

#endif
