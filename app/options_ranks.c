/* Whether all ranks were given the same options; see options.h. */
#include <assert.h>
#include <stdlib.h>

#include "app/options.h"
#include "model/base/random.h"

/* What an option is on one rank. */
struct said {
  int64_t digest;
  char text[56]; /* its beginning */
};

/* Folders and files may be called otherwise on each host, hosts have other numbers of cores, and scripts
 * quieten all ranks but one. */
static bool is_common(const struct option_row *row) {
  if (row->flags & OPTION_RESULT) return true;
  return row->type != OPTION_TEXT_VALUE && row->type != OPTION_WORDS && !(row->flags & OPTION_OWN);
}

static int64_t digest_of(const struct option_row *row, const void *values) {
  char text[OPTION_TEXT];
  return is_common(row) ? random_stream(options_text(row, values, text, sizeof text)) : 0;
}

/* Names the first rank that has something else than rank 0. */
static enum status refuse(const struct world *world, const struct option_row *row, const void *values) {
  struct said mine = {.digest = digest_of(row, values)}, *all = calloc((size_t)world->size, sizeof *all);
  char text[OPTION_TEXT];
  enum status status;
  int other = 0;
  snprintf(mine.text, sizeof mine.text, "%.55s", options_text(row, values, text, sizeof text));
  TRY_OUT(world_agree(world, all ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for options of all ranks")));
  TRY_OUT(world_allgather(world, &mine, sizeof mine, all));
  while (other < world->size - 1 && all[other].digest == all[0].digest) other++;
  status =
      RAISE(STATUS_INPUT,
            "--%s is '%s' on rank 0 and '%s' on rank %d; expected the same options on all ranks, and the "
            "same --config file on all hosts",
            row->name, all[0].text, all[other].text, other);
  status = world_agree(world, status);
out:
  free(all);
  return status;
}

enum status options_agree(const struct world *world, const struct option_table *table, const void *values,
                          enum status mine) {
  int64_t most[2 * OPTION_ROWS];
  TRY(world_agree(world, mine));
  const int count = table->count;
  assert(count <= OPTION_ROWS);
  for (int i = 0; i < count; i++) {
    most[i] = digest_of(&table->rows[i], values);
    most[count + i] = -most[i];
  }
  TRY(world_max_i64(world, most, 2 * count));
  for (int i = 0; i < count; i++)
    if (most[i] != -most[count + i]) return refuse(world, &table->rows[i], values);
  return STATUS_OK;
}
