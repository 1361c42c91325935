/* Random numbers as pure functions of what they are for: Philox4x32-10 (Salmon et al., SC'11, "Parallel
 * random numbers: as easy as 1, 2, 3"), from the library Random123. No state: the same arguments give the
 * same number on any rank, thread and machine. */
#ifndef CONVOY_MODEL_BASE_RANDOM_H
#define CONVOY_MODEL_BASE_RANDOM_H

#include <stdint.h>

/* What a number is drawn for: each purpose has its own sequence under one seed. */
enum random_purpose {
  RANDOM_ORDER,   /* an epoch's permutation */
  RANDOM_AUGMENT, /* a sample's flip and crop */
  RANDOM_IMPORT,  /* the permutation of imported images */
  RANDOM_SYNTH,   /* the generated data set */
  RANDOM_INIT,    /* initial parameters */
  RANDOM_TEST,    /* test inputs */
};

/* One sequence: (seed, purpose, stream), indexed by a 64-bit position. */
struct random_key {
  uint64_t seed;
  uint32_t purpose;
  uint32_t stream; /* e.g. the epoch, or the hash of a parameter's name */
};

struct random_key random_key(uint64_t seed, enum random_purpose purpose, uint32_t stream);

/* Four words of the sequence at `position`. */
void random_words(struct random_key key, uint64_t position, uint32_t out[4]);

/* A number in [0, bound) at `position`, free of bias to 2^-64 (bound < 2^32: the high half of a 64-bit
 * product). */
uint32_t random_below(struct random_key key, uint64_t position, uint32_t bound);

/* In (0, 1); of mean 0 and variance 1 (Box and Muller, 1958). */
double random_uniform(struct random_key key, uint64_t position);
double random_normal(struct random_key key, uint64_t position);

/* Two independent ones for the price of one; out[0] is random_normal's. */
void random_normal_pair(struct random_key key, uint64_t position, double out[2]);

/* A stream number for a name (32-bit FNV-1a). */
uint32_t random_stream(const char *name);

/* Fills order[count] with a permutation of 0..count-1 (Fisher-Yates; count < 2^32). */
void random_permutation(struct random_key key, uint32_t count, uint32_t *order);

#endif
