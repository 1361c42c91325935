/* Threads that decode images while another reads the archive. */
#ifndef CONVOY_DATA_DECODE_POOL_H
#define CONVOY_DATA_DECODE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "data/import_set.h"
#include "model/base/error.h"

struct decode_pool;

/* Starts `threads` decoders that add to `set`. */
enum status decode_pool_create(int threads, struct import_set *set, struct decode_pool **pool);

/* Hands over one encoded image, waiting while many are queued. Takes over image.name and data, also when it
 * fails. Fails after a decoder has failed; decode_pool_finish then tells why. */
enum status decode_pool_submit(struct decode_pool *pool, struct import_image image, uint8_t *data,
                               size_t bytes);

/* Waits for all images. The error of the first one submitted that failed, whichever thread met it. */
enum status decode_pool_finish(struct decode_pool *pool);

void decode_pool_destroy(struct decode_pool *pool); /* NULL: nothing */

#endif
