/* One op on one shape: drawn inputs, the reference's results, and a run on a backend that is held to them. */
#ifndef CONVOY_TESTS_REFERENCE_TRIAL_H
#define CONVOY_TESTS_REFERENCE_TRIAL_H

#include "model/backend/backend.h"
#include "tests/reference/arrays.h"
#include "tests/reference/cases.h"
#include "tests/reference/reference.h"

/* What an array is in struct op_io; results start at TRIAL_OUT. */
enum trial_role {
  TRIAL_IN,
  TRIAL_PARAM,
  TRIAL_STATISTIC,
  TRIAL_D_OUT,
  TRIAL_OUT,
  TRIAL_BATCH_STATISTIC,
  TRIAL_SAVED,
  TRIAL_D_IN,
  TRIAL_D_PARAM,
  TRIAL_ROLES,
};
enum { TRIAL_ARRAYS = 4 }; /* of one role, at most */

struct trial_array {
  struct tensor tensor; /* rank 0: the op has none */
  double *given;        /* values before the call; for d_in what is there to be added to */
  double *expected;     /* results: the reference's values */
  double *found;        /* results: the backend's values of the last run */
  unsigned char *bytes; /* results: the same as raw bytes */
  void *device;         /* during a run */
};

struct trial {
  struct op_desc desc;
  struct op_signature signature;
  float scale;
  struct trial_array array[TRIAL_ROLES][TRIAL_ARRAYS];
  bool backward_known; /* the reference's backward has run, */
  uint64_t mask;       /* with relu's mask and places of this digest */
};

/* What backward does with the gradients. */
enum trial_mode {
  TRIAL_OVERWRITE,
  TRIAL_ADD_FIRST,
  TRIAL_ADD_SECOND,
  TRIAL_ADD_BOTH,
  TRIAL_NO_D_IN,
  TRIAL_NO_D_FIRST, /* the first parameter's gradient is not wanted */
  TRIAL_NO_D_PARAM, /* none is */
  TRIAL_MODES
};

const char *trial_role_name(enum trial_role role);

/* Draws the inputs (each a function of case, op and role) and computes the reference's forward. */
enum status trial_create(const struct op_case *op_case, enum op_kind kind, enum dtype compute, bool training,
                         struct trial *trial);
void trial_destroy(struct trial *trial);

/* Is the gradient of parameter i wanted in the mode? */
bool trial_wants_param(enum trial_mode mode, int i);

/* Does this op have anything to test in the mode? */
bool trial_has_mode(const struct trial *trial, enum trial_mode mode);

/* Runs forward, and in training backward, with poisoned results, workspace and everything that the signature
 * does not keep. Fills found and bytes of all results. STATUS_INTERNAL also if inputs or memory past an array
 * changed. */
enum status trial_run(struct trial *trial, struct backend *backend, enum trial_mode mode);

/* Computes the reference's backward; where relu's mask or conv_pool's places are needed, from what the
 * backend found in the last run, so that a value that rounds across zero or another does not count as an
 * error of the gradient. Called by trial_run; does nothing if it has run for the same ones. */
void trial_reference_backward(struct trial *trial);

/* Was this array a result of a run in this mode? Then its deviation from the reference. */
bool trial_deviation(const struct trial *trial, enum trial_role role, int i, enum trial_mode mode,
                     struct deviation *deviation);

#endif
