/* How long the parts of a start take, from the process's launch to its first step. */
#ifndef CONVOY_APP_START_H
#define CONVOY_APP_START_H

#include <stddef.h>

enum { START_PARTS = 16 };

struct start {
  struct start_part {
    const char *name; /* borrowed */
    double seconds;
  } part[START_PARTS];
  int count;
  double mark;     /* clock */
  double launched; /* clock at the process's launch */
  double seconds;  /* from launch to the end of the first step; 0: it is not done */
};

/* Begins at the process's launch (what MPI's launcher did before is not seen) and takes what has passed since
 * as the part `name`. */
void start_begin(struct start *start, const char *name);

/* The time since the last call is the part `name`. */
void start_part(struct start *start, const char *name);
/* So many of these seconds, which lie in the part after the last call, are a part of their own. */
void start_part_within(struct start *start, const char *name, double seconds);

/* The first step is done. */
void start_end(struct start *start);

/* "mpi 0.21 s, data 0.40, …, first step at 2.10 s" */
void start_text(const struct start *start, char *text, size_t capacity);

#endif
