/* Walks what images are imported from, a folder or an archive, and hands out its members. Nothing is ever
 * written or extracted: the names are only names. */
#ifndef CONVOY_DATA_SOURCE_H
#define CONVOY_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/error.h"

enum { SOURCE_MAX_BYTES = 1 << 28 }; /* of one member: data_batch_1.bin has 31 MB */

enum source_kind { SOURCE_FILE, SOURCE_FOLDER, SOURCE_LINK, SOURCE_SPECIAL };

struct source_visitor {
  /* Called for each member; sets *wanted where its bytes are to be read (only asked of files). */
  enum status (*member)(void *context, const char *name, enum source_kind kind, bool *wanted);
  /* The bytes of a wanted member; `data` (malloc) belongs to the callee, also when it fails. */
  enum status (*data)(void *context, const char *name, uint8_t *data, size_t bytes);
  void *context;
};

/* Any order. A status other than OK of a call ends the walk. Names are relative to the folder or as in the
 * archive; symbolic links are followed in a folder (it is the user's own) and never in an archive. */
enum status source_walk(const char *path, const struct source_visitor *visitor);

/* What source_walk does with a file: archive_read.c. */
enum status source_archive(const char *path, const struct source_visitor *visitor);

#endif
