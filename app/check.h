/* `convoy check`: is this machine, job and data ready to train? */
#ifndef CONVOY_APP_CHECK_H
#define CONVOY_APP_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "app/options.h"
#include "app/placement.h"
#include "model/backend/backend.h"

/* Makes the checks that the options ask for, prints a table or JSON on rank 0; STATUS_INPUT if one fails.
 * Writes nothing. Collective. */
enum status check_command(int argc, char **argv, const struct world *world);
extern const struct option_table check_table;

/* ---- for the files that make up `convoy check` ---- */

enum check_state { CHECK_OK, CHECK_WARN, CHECK_FAIL };

struct check_result {
  int state; /* enum check_state */
  char found[384];
  char advice[256]; /* what to do; "" if ok */
};

struct check_row {
  const char *name;
  int rank; /* whose result it is */
  char host[64];
  struct check_result result;
};

struct check_options {
  char data[OPTION_TEXT], out[OPTION_TEXT];
  int backend, precision;
  int64_t expect_ranks, init_timeout;
  bool json;
};

enum { CHECK_ROWS = 16 };

struct check {
  const struct world *world;
  struct check_options options;
  struct backend *backend;     /* NULL: it could not be opened */
  struct placement *placement; /* by rank; NULL as long as it is not known */
  struct check_row row[CHECK_ROWS];
  int count;
};

/* Fills a result: what is to be done (NULL: nothing), and what was found. */
void check_say(struct check_result *result, enum check_state state, const char *advice, const char *format,
               ...) __attribute__((format(printf, 4, 5)));

/* Adds a row: of all ranks' results the worst, of equal ones the lowest rank's. Collective. */
enum status check_add(struct check *check, const char *name, const struct check_result *own);

/* Adds a row that fails if `status`, on which the ranks agreed, is not OK: with the text of the recorded
 * error, which is cleared. A communication failure is returned, all else is STATUS_OK. Collective. */
enum status check_add_status(struct check *check, const char *name, enum status status,
                             const struct check_result *own);

/* check_machine.c: the launch and the hosts. */
enum status check_ranks(struct check *check);
enum status check_versions(struct check *check);
enum status check_network(struct check *check);
enum status check_memory(struct check *check);
enum status check_data(struct check *check);
enum status check_out(struct check *check);

/* check_device.c: opens the backend, sums over the ranks, multiplies; the last two only if it opens. */
enum status check_device(struct check *check);
enum status check_allreduce(struct check *check);
enum status check_products(struct check *check);

/* The rank that is slower than half of the fastest; -1: none. */
int check_slow(const double *rate, int count);

/* Whether a rate is far below what such a device can do; `peak` 0: not known. */
bool check_weak(double rate, double peak);

/* Whether NCCL_SOCKET_IFNAME's value `wanted` lets NCCL use the interface: a list of prefixes, after `=` of
 * names, after `^` of what is not to be used. */
bool check_interface(const char *wanted, const char *name);

/* app/checkpoint_library.c: "HDF5 1.10.8"; true if the program was compiled with the version loaded. */
bool checkpoint_library(char *text, size_t capacity);

#endif
