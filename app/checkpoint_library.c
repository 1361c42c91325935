/* Which HDF5 library is loaded; apart from checkpoints only for `convoy check`. */
#include <hdf5.h>
#include <stdio.h>

#include "app/check.h"

bool checkpoint_library(char *text, size_t capacity) {
  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) {
    snprintf(text, capacity, "HDF5 unknown");
    return false;
  }
  snprintf(text, capacity, "HDF5 %u.%u.%u", major, minor, release);
  return major == H5_VERS_MAJOR && minor == H5_VERS_MINOR && release == H5_VERS_RELEASE;
}
