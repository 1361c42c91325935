/* compare_arrays A B GROUP...: exit 0 if two checkpoints hold the same arrays below these groups, bit for
 * bit; else 1 and a line a difference. Whole-program suites run it. */
#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 5 };

struct comparison {
  hid_t file[2];
  const char *group;
  int arrays, differences;
};

/* The array's elements as floats; NULL if there is none of that name. The caller frees them. */
static float *read_array(hid_t file, const char *path, size_t *count) {
  float *data = NULL;
  hid_t array = H5Dopen2(file, path, H5P_DEFAULT);
  if (array < 0) return NULL;
  hid_t space = H5Dget_space(array);
  hssize_t elements = H5Sget_simple_extent_npoints(space);
  if (elements >= 0) data = calloc((size_t)elements + 1, sizeof *data);
  if (data && H5Dread(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
    free(data);
    data = NULL;
  }
  *count = elements < 0 ? 0 : (size_t)elements;
  H5Sclose(space);
  H5Dclose(array);
  return data;
}

static uint32_t bits(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return word;
}

static void compare(struct comparison *c, const char *path) {
  size_t count[2] = {0, 0}, differing = 0;
  float *data[2] = {read_array(c->file[0], path, &count[0]), read_array(c->file[1], path, &count[1])};
  bool same = data[0] && data[1] && count[0] == count[1];
  for (size_t i = 0; same && i < count[0]; i++) differing += bits(data[0][i]) != bits(data[1][i]);
  if (!same || differing > 0) {
    if (c->differences++ < SHOWN)
      printf("%s: %zu of %zu elements differ%s\n", path, differing, count[0], same ? "" : " in shape");
  }
  c->arrays++;
  free(data[0]);
  free(data[1]);
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *info, void *argument) {
  struct comparison *c = argument;
  char path[512];
  H5O_type_t type = H5O_TYPE_UNKNOWN;
  (void)info;
  hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  if (object >= 0) {
    type = H5Iget_type(object) == H5I_DATASET ? H5O_TYPE_DATASET : H5O_TYPE_GROUP;
    H5Oclose(object);
  }
  snprintf(path, sizeof path, "%s/%s", c->group, name);
  if (type == H5O_TYPE_DATASET) compare(c, path);
  return 0;
}

/* All arrays below the group in file `from`. */
static int visit_group(struct comparison *c, int from) {
  int before = c->arrays;
  if (H5Lexists(c->file[from], c->group, H5P_DEFAULT) <= 0) return 0;
  hid_t group = H5Gopen2(c->file[from], c->group, H5P_DEFAULT);
  if (group < 0) return 0;
  H5Lvisit(group, H5_INDEX_NAME, H5_ITER_INC, visit, c);
  H5Gclose(group);
  return c->arrays - before;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s A B GROUP...\n", argv[0]);
    return 2;
  }
  struct comparison c = {{-1, -1}, NULL, 0, 0};
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  for (int i = 0; i < 2; i++) {
    c.file[i] = H5Fopen(argv[1 + i], H5F_ACC_RDONLY, H5P_DEFAULT);
    if (c.file[i] < 0) {
      printf("%s cannot be opened\n", argv[1 + i]);
      return 1;
    }
  }
  for (int i = 3; i < argc; i++) {
    c.group = argv[i];
    int first = visit_group(&c, 0), second = visit_group(&c, 1);
    if (first != second) {
      printf("%s: %d arrays, but %d in the other file\n", argv[i], first, second);
      c.differences++;
    }
  }
  for (int i = 0; i < 2; i++) H5Fclose(c.file[i]);
  printf("%d arrays compared, %d differ\n", c.arrays / 2, c.differences);
  return c.arrays == 0 || c.differences > 0;
}
