/* Philox sequences; see random.h. */
#include "model/base/random.h"

#include <math.h>

#include <Random123/philox.h>

struct random_key random_key(uint64_t seed, enum random_purpose purpose, uint32_t stream) {
  return (struct random_key){.seed = seed, .purpose = (uint32_t)purpose, .stream = stream};
}

void random_words(struct random_key key, uint64_t position, uint32_t out[4]) {
  philox4x32_ctr_t counter = {{(uint32_t)position, (uint32_t)(position >> 32), key.stream, key.purpose}};
  philox4x32_key_t philox_key = {{(uint32_t)key.seed, (uint32_t)(key.seed >> 32)}};
  philox4x32_ctr_t words = philox4x32(counter, philox_key);
  for (int i = 0; i < 4; i++) out[i] = words.v[i];
}

static uint64_t word64(const uint32_t words[2]) {
  return ((uint64_t)words[1] << 32) | words[0];
}

uint32_t random_below(struct random_key key, uint64_t position, uint32_t bound) {
  uint32_t words[4];
  random_words(key, position, words);
  /* floor(word * bound / 2^64), in two 32-bit steps */
  uint64_t low = ((uint64_t)words[0] * bound) >> 32;
  return (uint32_t)(((uint64_t)words[1] * bound + low) >> 32);
}

double random_uniform(struct random_key key, uint64_t position) {
  uint32_t words[4];
  random_words(key, position, words);
  return ((double)(word64(words) >> 12) + 0.5) * 0x1p-52;
}

void random_normal_pair(struct random_key key, uint64_t position, double out[2]) {
  uint32_t words[4];
  random_words(key, position, words);
  double uniform = ((double)(word64(words) >> 12) + 0.5) * 0x1p-52;
  double radius = sqrt(-2.0 * log(uniform)),
         angle = 6.283185307179586477 * ((double)word64(words + 2) * 0x1p-64);
  out[0] = radius * cos(angle);
  out[1] = radius * sin(angle);
}

double random_normal(struct random_key key, uint64_t position) {
  double pair[2];
  random_normal_pair(key, position, pair);
  return pair[0];
}

uint32_t random_stream(const char *name) {
  uint32_t hash = 2166136261u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash;
}

void random_permutation(struct random_key key, uint32_t count, uint32_t *order) {
  for (uint32_t i = 0; i < count; i++) order[i] = i;
  for (uint32_t i = count; i > 1; i--) {
    uint32_t j = random_below(key, i, i), swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
  }
}
