/* The known name that an unknown one was probably meant to be. */
#ifndef CONVOY_MODEL_BASE_NEAREST_H
#define CONVOY_MODEL_BASE_NEAREST_H

/* The index in 0..count-1 of the name with the smallest edit distance (Levenshtein, 1966) to `name`; the
 * first of several; -1 if count is 0. at(table, i) gives the i-th name. */
int nearest_name(const char *name, const void *table, int count,
                 const char *(*at)(const void *table, int index));

#endif
