/* The header of a checkpoint and the check of every byte against it. HDF5 finds a truncated file but not a
 * changed one, and reads damaged structures at its own risk: nothing reaches it before this check. */
#include "app/checkpoint_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "model/base/file.h"

enum { READ_BYTES = 1 << 20 };

static void header_text(int64_t file_bytes, uint64_t digest, char *header) {
  memset(header, ' ', CHECKPOINT_HEADER);
  int used = snprintf(header, CHECKPOINT_HEADER,
                      CHECKPOINT_FORMAT
                      "\nbytes %020" PRId64 "\nxxh3 %016" PRIx64
                      "\nAn HDF5 file whose user block is this text; the digest covers the rest.\n",
                      file_bytes, digest);
  header[used] = ' ';
  header[CHECKPOINT_HEADER - 1] = '\n';
}

void checkpoint_header_make(const void *image, size_t bytes, char *header) {
  header_text((int64_t)bytes + CHECKPOINT_HEADER, XXH3_64bits(image, bytes), header);
}

static enum status digest_rest(int fd, const char *path, uint64_t *digest) {
  enum status status = STATUS_OK;
  XXH3_state_t *state = XXH3_createState();
  char *buffer = malloc(READ_BYTES);
  size_t got;
  int failed;
  if (!state || !buffer || XXH3_64bits_reset(state) == XXH_ERROR) {
    status = RAISE(STATUS_INPUT, "out of memory while reading %s", path);
    goto out;
  }
  while ((failed = file_read(fd, buffer, READ_BYTES, &got)) == 0 && got > 0)
    XXH3_64bits_update(state, buffer, got);
  if (failed)
    status = RAISE(STATUS_STORAGE, "cannot read %s: %s", path, strerror(failed));
  else
    *digest = XXH3_64bits_digest(state);
out:
  free(buffer);
  XXH3_freeState(state);
  return status;
}

static enum status verify_open_file(int fd, const char *path) {
  static const char prefix[] = "convoy-checkpoint-";
  char header[CHECKPOINT_HEADER + 1] = "", expected[CHECKPOINT_HEADER];
  struct stat info;
  if (fstat(fd, &info) != 0) return RAISE(STATUS_STORAGE, "cannot read %s: %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode)) return RAISE(STATUS_STORAGE, "%s is not a file", path);
  if (info.st_size < CHECKPOINT_HEADER)
    return RAISE(STATUS_STORAGE, "%s is truncated: %lld bytes, shorter than a checkpoint's header", path,
                 (long long)info.st_size);
  size_t got;
  int failed = file_read(fd, header, CHECKPOINT_HEADER, &got);
  if (failed || got != CHECKPOINT_HEADER)
    return RAISE(STATUS_STORAGE, "cannot read %s: %s", path, failed ? strerror(failed) : "it became shorter");
  if (memcmp(header, prefix, sizeof prefix - 1) != 0)
    return RAISE(STATUS_STORAGE, "%s is not a checkpoint of Convoy, or its header is damaged", path);
  int64_t bytes;
  uint64_t digest, found = 0;
  if (sscanf(header, CHECKPOINT_FORMAT " bytes %" SCNd64 " xxh3 %" SCNx64, &bytes, &digest) != 2)
    return RAISE(STATUS_STORAGE, "%s: header is damaged or of another version (found %.20s, expected %s)",
                 path, header, CHECKPOINT_FORMAT);
  if (info.st_size != bytes)
    return RAISE(STATUS_STORAGE, "%s is %s: %lld bytes, expected %" PRId64, path,
                 info.st_size < bytes ? "truncated" : "too long", (long long)info.st_size, bytes);
  TRY(digest_rest(fd, path, &found));
  header_text(bytes, digest, expected);
  if (found != digest || memcmp(header, expected, CHECKPOINT_HEADER) != 0)
    return RAISE(STATUS_STORAGE, "%s is damaged: digest %016" PRIx64 ", expected %016" PRIx64, path, found,
                 digest);
  return STATUS_OK;
}

enum status checkpoint_header_verify(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return RAISE(errno == ENOENT ? STATUS_INPUT : STATUS_STORAGE, "cannot open checkpoint %s: %s", path,
                 strerror(errno));
  enum status status = verify_open_file(fd, path);
  close(fd);
  return status;
}
