/* Edit distance over one row of the usual table. */
#include "model/base/nearest.h"

#include <string.h>

enum { LONGEST = 64 }; /* characters of a name that count */

static int distance(const char *a, const char *b) {
  int row[LONGEST + 1];
  int length_b = (int)strnlen(b, LONGEST);
  for (int j = 0; j <= length_b; j++) row[j] = j;
  for (int i = 1; i <= LONGEST && a[i - 1]; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= length_b; j++) {
      int change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      int edit = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = change < edit ? change : edit;
    }
  }
  return row[length_b];
}

int nearest_name(const char *name, const void *table, int count,
                 const char *(*at)(const void *table, int index)) {
  int best = -1, least = 0;
  for (int i = 0; i < count; i++) {
    int d = distance(name, at(table, i));
    if (best < 0 || d < least) {
      best = i;
      least = d;
    }
  }
  return best;
}
