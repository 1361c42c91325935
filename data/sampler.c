/* The order of an epoch, its split over ranks, and the augmentation of each sample; see sampler.h. */
#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "model/base/random.h"

enum { MAX_SIDE = 16384 }; /* so that a cut's place fits struct sample */
enum { BLOCK_BYTES = 1 << 20, WINDOW_BLOCKS = 64 };

void sampler_by_blocks(struct sampler *sampler, int64_t row_bytes) {
  sampler->block = row_bytes < BLOCK_BYTES ? BLOCK_BYTES / row_bytes : 1;
  sampler->window = WINDOW_BLOCKS;
}

int64_t sampler_steps(const struct sampler *sampler) {
  return (sampler->count + sampler->global_batch - 1) / sampler->global_batch;
}

int64_t sampler_step_count(const struct sampler *sampler, int64_t step) {
  int64_t left = sampler->count - step * sampler->global_batch;
  if (left < 0) return 0;
  return left < sampler->global_batch ? left : sampler->global_batch;
}

void sampler_part(int64_t total, int rank, int size, int64_t *first, int64_t *count) {
  int64_t base = total / size, rest = total % size;
  *first = rank * base + (rank < rest ? rank : rest);
  *count = base + (rank < rest ? 1 : 0);
}

void sampler_rank_part(const struct sampler *sampler, int64_t step, int rank, int size, int64_t *first,
                       int64_t *count) {
  int64_t total = sampler_step_count(sampler, step), last_first, last_count;
  int lanes = sampler->lanes > 0 ? sampler->lanes : size, held = lanes / size;
  sampler_part(total, rank * held, lanes, first, count);
  sampler_part(total, rank * held + held - 1, lanes, &last_first, &last_count);
  *count = last_first + last_count - *first;
}

/* A number in [-range, range] from 32 random bits. */
static int8_t shift(uint32_t word, int range) {
  return (int8_t)((int64_t)(((uint64_t)word * (uint64_t)(2 * range + 1)) >> 32) - range);
}

static struct sample augment(const struct sampler *sampler, struct random_key key, uint32_t index) {
  struct sample sample = {.index = index};
  if (!sampler->flip && sampler->crop == 0 && sampler->cut == 0) return sample;
  uint32_t words[4];
  random_words(key, index, words);
  if (sampler->flip) sample.flip = (uint8_t)(words[0] >> 31);
  if (sampler->crop > 0) {
    sample.shift_y = shift(words[1], sampler->crop);
    sample.shift_x = shift(words[2], sampler->crop);
    sample.reflect = sampler->reflect;
  }
  if (sampler->cut > 0) { /* the centre is any pixel; each half of a word is one coordinate */
    sample.cut = (uint16_t)sampler->cut;
    sample.cut_y = (int16_t)((int)((words[3] >> 16) * (uint32_t)sampler->height >> 16) - sampler->cut / 2);
    sample.cut_x = (int16_t)((int)((words[3] & 0xffff) * (uint32_t)sampler->width >> 16) - sampler->cut / 2);
  }
  return sample;
}

/* Shuffles the rows of one window in place, by a sequence of its own. */
static void shuffle_window(const struct sampler *sampler, int64_t epoch, int64_t number, uint32_t *order,
                           uint32_t count, uint32_t *scratch) {
  struct random_key key = random_key(sampler->seed, RANDOM_ORDER, (uint32_t)epoch);
  key.seed = key.seed * 0x9e3779b97f4a7c15u + (uint64_t)number + 1;
  uint32_t *rows = scratch + count;
  random_permutation(key, count, scratch);
  memcpy(rows, order, count * sizeof *rows);
  for (uint32_t i = 0; i < count; i++) order[i] = rows[scratch[i]];
}

/* Blocks in random order, then each window shuffled. */
static enum status order_by_blocks(const struct sampler *sampler, int64_t epoch, uint32_t *order) {
  int64_t blocks = (sampler->count + sampler->block - 1) / sampler->block;
  int64_t window =
      sampler->block * sampler->window < sampler->count ? sampler->block * sampler->window : sampler->count;
  uint32_t *place = malloc(((size_t)blocks + 2 * (size_t)window) * sizeof *place);
  if (!place) return RAISE(STATUS_INPUT, "no memory for the order of %lld blocks", (long long)blocks);
  random_permutation(random_key(sampler->seed, RANDOM_ORDER, (uint32_t)epoch), (uint32_t)blocks, place);
  int64_t filled = 0, begin = 0;
  for (int64_t b = 0; b < blocks; b++) {
    int64_t first = place[b] * sampler->block, last = first + sampler->block;
    for (int64_t row = first; row < last && row < sampler->count; row++) order[filled++] = (uint32_t)row;
    if ((b + 1) % sampler->window != 0 && b + 1 < blocks) continue;
    shuffle_window(sampler, epoch, b / sampler->window, order + begin, (uint32_t)(filled - begin),
                   place + blocks);
    begin = filled;
  }
  free(place);
  return STATUS_OK;
}

enum status sampler_epoch(const struct sampler *sampler, int64_t epoch, struct sample *list) {
  if (sampler->count < 0 || sampler->count > UINT32_MAX)
    return RAISE(STATUS_INPUT, "%lld training images: at most %u can be ordered", (long long)sampler->count,
                 UINT32_MAX);
  if (sampler->crop < 0 || sampler->crop > INT8_MAX)
    return RAISE(STATUS_INPUT, "crop by %d pixels: expected 0..%d", sampler->crop, INT8_MAX);
  if (sampler->cut < 0 || sampler->cut > MAX_SIDE ||
      (sampler->cut > 0 && (sampler->height > MAX_SIDE || sampler->width > MAX_SIDE)))
    return RAISE(STATUS_INPUT, "a square of %d pixels cut from images of %dx%d: expected at most %d each",
                 sampler->cut, sampler->height, sampler->width, MAX_SIDE);
  if (sampler->count == 0) return STATUS_OK;
  uint32_t *order = calloc((size_t)sampler->count, sizeof *order);
  if (!order) return RAISE(STATUS_INPUT, "no memory for the order of %lld images", (long long)sampler->count);
  enum status status = STATUS_OK;
  if (sampler->window > 0)
    TRY_OUT(order_by_blocks(sampler, epoch, order));
  else
    random_permutation(random_key(sampler->seed, RANDOM_ORDER, (uint32_t)epoch), (uint32_t)sampler->count,
                       order);
  struct random_key key = random_key(sampler->seed, RANDOM_AUGMENT, (uint32_t)epoch);
  for (int64_t i = 0; i < sampler->count; i++) list[i] = augment(sampler, key, order[i]);
out:
  free(order);
  return status;
}

int64_t sampler_rank_count(const struct sampler *sampler, int64_t first_step, int rank, int size) {
  int64_t total = 0, steps = sampler_steps(sampler);
  for (int64_t step = first_step; step < steps; step++) {
    int64_t first, count;
    sampler_rank_part(sampler, step, rank, size, &first, &count);
    total += count;
  }
  return total;
}

void sampler_rank_list(const struct sampler *sampler, const struct sample *list, int64_t first_step, int rank,
                       int size, struct sample *mine, uint32_t *begin) {
  int64_t filled = 0, steps = sampler_steps(sampler);
  for (int64_t step = first_step; step < steps; step++) {
    int64_t first, count;
    sampler_rank_part(sampler, step, rank, size, &first, &count);
    begin[step - first_step] = (uint32_t)filled;
    memcpy(mine + filled, list + step * sampler->global_batch + first, (size_t)count * sizeof *mine);
    filled += count;
  }
}
