/* Room on disks. */
#ifndef CONVOY_MODEL_BASE_DISK_H
#define CONVOY_MODEL_BASE_DISK_H

#include <stdint.h>

#include "model/base/error.h"

/* Bytes that this user may still write in the file system of an existing folder. STATUS_STORAGE: it cannot
 * be asked. */
enum status disk_free(const char *folder, int64_t *bytes);

#endif
