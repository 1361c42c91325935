/* Errors as values: what can fail returns an enum status, and the text is recorded where the error arises.
 *
 * A function that fails leaves its outputs unset and owns nothing more than before the call. Callers pass the
 * status up with TRY (nothing owned) or TRY_OUT (one `out:` label frees what is owned); only main prints. */
#ifndef CONVOY_MODEL_BASE_ERROR_H
#define CONVOY_MODEL_BASE_ERROR_H

#include <stdio.h>

/* Why a call failed. The values are the program's exit codes. */
enum status {
  STATUS_OK = 0,
  STATUS_INTERNAL = 1, /* a library failed, or the program is wrong: never the user's fault */
  STATUS_INPUT = 2,    /* usage, configuration or input refused; too little memory for what was asked */
  STATUS_NUMERIC = 3,  /* the loss is not finite */
  STATUS_STORAGE = 4,  /* cannot write, disk full, no checkpoint loads */
  STATUS_COMM = 5,     /* a peer died, froze or timed out */
  STATUS_STOPPED = 75, /* stopped on request, with a good checkpoint */
};

/* Records the error's one line (what was found, what was expected, what to do) for this thread, replacing any
 * earlier one, and returns `status`. Control characters become '?'. */
enum status error_raise(enum status status, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds `function` to the recorded error's trace (printed when CONVOY_TRACE is set) and returns `status`. */
enum status error_trace(enum status status, const char *function);

/* Adds one line of detail below the recorded error; it is printed indented. */
void error_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* This thread's recorded line without its `error: `, "" if there is none. Valid until the next raise. */
const char *error_message(void);

/* Forgets this thread's recorded error: it was handled. */
void error_clear(void);

/* A record, or none, of this thread's, to be put back after what may raise or clear another one while the
 * first is still to be told. */
struct error_record {
  char message[1024];
  char detail[2048];
  char trace[512];
};
void error_save(struct error_record *record);
void error_restore(const struct error_record *record);

/* Prints `error: …` and the details to `stream`, nothing if no error is recorded. */
void error_print(FILE *stream);

/* `status` itself: lets an analyzer see that what was raised or traced stays a failure. */
static inline enum status error_same(enum status status, enum status recorded) {
  (void)recorded;
  return status;
}

#define RAISE(status, ...) error_same((status), error_raise((status), __func__, __VA_ARGS__))

#define TRY(call)                                                                                            \
  do {                                                                                                       \
    enum status try_status = (call);                                                                         \
    if (try_status != STATUS_OK) return error_same(try_status, error_trace(try_status, __func__));           \
  } while (0)

/* For a function with a local `enum status status` and a label `out`. */
#define TRY_OUT(call)                                                                                        \
  do {                                                                                                       \
    status = (call);                                                                                         \
    if (status != STATUS_OK) {                                                                               \
      error_trace(status, __func__);                                                                         \
      goto out;                                                                                              \
    }                                                                                                        \
  } while (0)

#endif
