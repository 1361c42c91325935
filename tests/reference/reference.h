/* The definition of every op, the optimizers and the gather: plain loops over doubles, no speed, no library.
 * The backends are held to it; it is held to finite differences and to hand-made values
 * (tests/test_reference.c). It shares no code with the program but the structs that describe the work. */
#ifndef CONVOY_TESTS_REFERENCE_REFERENCE_H
#define CONVOY_TESTS_REFERENCE_REFERENCE_H

#include "model/backend/backend.h"

/* As struct op_io, with every array in doubles (labels and maxpool's places too). Entries that the op does
 * not have are NULL; so may be outputs that are not wanted, except out. */
struct reference_io {
  const double *in[OP_MAX_IN];
  const double *param[OP_MAX_PARAM];
  const double *statistic[OP_MAX_STATISTIC]; /* read if not training */
  double scale;                              /* 1 / samples in the global batch */
  double *out; /* backward reads it where relu is applied: out > 0 is its mask */
  double *batch_statistic[OP_MAX_STATISTIC];
  double *saved[OP_MAX_SAVED]; /* written by forward only to be compared: backward starts from in and param;
                                  but conv_pool's reads the places, if given: of nearly equal values any may
                                  be the largest after rounding */
  const double *d_out;
  double *d_in[OP_MAX_IN]; /* overwritten */
  double *d_param[OP_MAX_PARAM];
};

void reference_forward(const struct op_desc *desc, const struct reference_io *io);
void reference_backward(const struct op_desc *desc, const struct reference_io *io);

#define OP(NAME, name)                                                                                       \
  void reference_##name##_forward(const struct op_desc *desc, const struct reference_io *io);                \
  void reference_##name##_backward(const struct op_desc *desc, const struct reference_io *io);
#include "model/ops/ops.def"
#undef OP

double reference_activation(enum activation kind, double x);            /* value; NONE: x */
double reference_activation_derivative(enum activation kind, double x); /* gelu and silu; NONE: 1 */

/* What conv_pool's convolution gives at these places of the windows; NaN where a place is none or has an
 * equal before it. */
void reference_conv_pool_chosen(const struct op_desc *desc, const struct reference_io *io,
                                const double *place, double *value);

/* One step as struct update_desc defines it. */
void reference_update(const struct update_desc *desc, const struct step_row *row, double *params,
                      const double *gradients, double *slot0, double *slot1);

/* batch[count][H][W][C] and labels[count] of list[first ..]; desc's pointers are host memory. */
void reference_gather(const struct gather_desc *desc, uint32_t first, const struct sample *list,
                      double *batch, int32_t *labels);

/* Zeroed doubles; ends the process if there is no memory. Freed by the caller. */
double *reference_array(int64_t count);

/* Place of element (n,h,w,c) of an N,H,W,C (or K,R,S,C) array. */
static inline int64_t reference_at(const int64_t dim[4], int64_t n, int64_t h, int64_t w, int64_t c) {
  return ((n * dim[1] + h) * dim[2] + w) * dim[3] + c;
}

#endif
