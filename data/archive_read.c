/* Members of an archive of any kind that libarchive reads; see source.h. */
#include "data/source.h"

#ifdef CONVOY_ARCHIVE

#include <stdlib.h>
#include <string.h>

#include <archive.h>
#include <archive_entry.h>

enum { BLOCK_BYTES = 1 << 16 };

static const char *reason(struct archive *archive) {
  const char *text = archive_error_string(archive);
  return text ? text : "libarchive gives no reason";
}

/* Reads the current member to its end; its claimed size is not trusted. */
static enum status read_member(struct archive *archive, const char *path, const char *name, uint8_t **data,
                               size_t *bytes) {
  size_t used = 0, capacity = BLOCK_BYTES;
  uint8_t *buffer = malloc(capacity);
  enum status status = STATUS_OK;
  for (;;) {
    if (!buffer) TRY_OUT(RAISE(STATUS_INPUT, "%s: %s: no memory for its bytes", path, name));
    la_ssize_t got = archive_read_data(archive, buffer + used, capacity - used);
    if (got < 0) TRY_OUT(RAISE(STATUS_INPUT, "%s: %s cannot be read: %s", path, name, reason(archive)));
    if (got == 0) break;
    used += (size_t)got;
    if (used < capacity) continue;
    if (capacity >= SOURCE_MAX_BYTES)
      TRY_OUT(RAISE(STATUS_INPUT, "%s: %s has more than %d bytes", path, name, SOURCE_MAX_BYTES));
    capacity *= 2;
    uint8_t *larger = realloc(buffer, capacity);
    if (!larger) free(buffer);
    buffer = larger;
  }
  *data = buffer;
  *bytes = used;
  return STATUS_OK;
out:
  free(buffer);
  return status;
}

static enum source_kind kind_of(struct archive_entry *entry) {
  if (archive_entry_hardlink(entry) || archive_entry_symlink(entry)) return SOURCE_LINK;
  switch (archive_entry_filetype(entry)) {
  case AE_IFREG:
    return SOURCE_FILE;
  case AE_IFDIR:
    return SOURCE_FOLDER;
  case AE_IFLNK:
    return SOURCE_LINK;
  default:
    return SOURCE_SPECIAL;
  }
}

static enum status visit(struct archive *archive, struct archive_entry *entry, const char *path,
                         const struct source_visitor *visitor) {
  const char *stored = archive_entry_pathname(entry);
  if (!stored) stored = archive_entry_pathname_utf8(entry);
  if (!stored) return RAISE(STATUS_INPUT, "%s: a member has a name that cannot be read as text", path);
  char *name = strdup(stored); /* libarchive may reuse the entry's memory */
  if (!name) return RAISE(STATUS_INPUT, "no memory for a name");
  enum status status = STATUS_OK;
  enum source_kind kind = kind_of(entry);
  bool wanted = false;
  TRY_OUT(visitor->member(visitor->context, name, kind, &wanted));
  if (wanted && kind == SOURCE_FILE) {
    uint8_t *data;
    size_t bytes;
    TRY_OUT(read_member(archive, path, name, &data, &bytes));
    TRY_OUT(visitor->data(visitor->context, name, data, bytes));
  }
out:
  free(name);
  return status;
}

/* All but what would start other programs (lrzip, grzip, uu) or open files that an archive names (mtree). A
 * kind that this libarchive lacks is just not recognised. */
static void support(struct archive *archive) {
  int (*const enable[])(struct archive *) = {
      archive_read_support_filter_gzip,    archive_read_support_filter_bzip2,
      archive_read_support_filter_xz,      archive_read_support_filter_lzma,
      archive_read_support_filter_lzip,    archive_read_support_filter_zstd,
      archive_read_support_filter_lz4,     archive_read_support_filter_compress,
      archive_read_support_format_tar,     archive_read_support_format_zip,
      archive_read_support_format_7zip,    archive_read_support_format_cpio,
      archive_read_support_format_rar,     archive_read_support_format_rar5,
      archive_read_support_format_cab,     archive_read_support_format_xar,
      archive_read_support_format_iso9660,
  };
  for (size_t i = 0; i < sizeof enable / sizeof *enable; i++) enable[i](archive);
}

enum status source_archive(const char *path, const struct source_visitor *visitor) {
  struct archive *archive = archive_read_new();
  enum status status = STATUS_OK;
  if (!archive) return RAISE(STATUS_INPUT, "no memory to read %s", path);
  support(archive);
  if (archive_read_open_filename(archive, path, BLOCK_BYTES) != ARCHIVE_OK)
    TRY_OUT(RAISE(STATUS_INPUT, "%s is no archive that can be read: %s", path, reason(archive)));
  for (;;) {
    struct archive_entry *entry;
    int result = archive_read_next_header(archive, &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
      TRY_OUT(
          RAISE(STATUS_INPUT, "%s cannot be read as an archive: %s; copy it again", path, reason(archive)));
    TRY_OUT(visit(archive, entry, path, visitor));
  }
out:
  archive_read_free(archive);
  return status;
}

#else

enum status source_archive(const char *path, const struct source_visitor *visitor) {
  (void)visitor;
  return RAISE(STATUS_INPUT,
               "%s: archives need libarchive, which was not there when convoy was built (Debian: "
               "libarchive-dev); unpack it yourself and give the folder",
               path);
}

#endif
