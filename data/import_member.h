/* What the name of an imported member says: an image of a class, a file of CIFAR-10's binary version, or
 * nothing to us. */
#ifndef CONVOY_DATA_IMPORT_MEMBER_H
#define CONVOY_DATA_IMPORT_MEMBER_H

#include <stdbool.h>
#include <stddef.h>

#include "data/dataset.h"
#include "model/base/error.h"

enum member_kind {
  MEMBER_OTHER,
  MEMBER_IMAGE,       /* PREFIX/train|test/CLASS/NAME.jpg|jpeg|png */
  MEMBER_CIFAR,       /* PREFIX/data_batch_1.bin .. 5, test_batch.bin */
  MEMBER_CIFAR_NAMES, /* PREFIX/batches.meta.txt */
};

struct member {
  enum member_kind kind;
  int split, batch;                    /* batch: 1..5; 0 for test_batch.bin */
  size_t prefix;                       /* length of the leading part of the name */
  char class_name[DATASET_CLASS_NAME]; /* MEMBER_IMAGE */
};

/* STATUS_INPUT for a name that is meant for us but cannot be taken: an image elsewhere in the tree, an
 * absolute or climbing path, a class name too long or with control characters. Hidden files are nothing to
 * us. */
enum status import_member_parse(const char *name, struct member *member);

/* True for a folder train|test/CLASS, whose name goes to class_name. */
bool import_member_class_folder(const char *name, char class_name[DATASET_CLASS_NAME]);

#endif
