/* What a checkpoint says about the run that wrote it: the options that fix the result and facts about the
 * data. */
#ifndef CONVOY_APP_RECORD_H
#define CONVOY_APP_RECORD_H

#include "app/checkpoint.h"
#include "app/train_options.h"
#include "data/dataset.h"

enum { RECORD_MAX = 64, RECORD_VALUE = 128, RECORD_TEXTS = 4 };

/* option[0..strict) must not change when a run is resumed. The values point into this struct and to what it
 * owns: it is not to be copied. */
struct record {
  struct checkpoint_option option[RECORD_MAX];
  int count, strict;
  char value[RECORD_MAX][RECORD_VALUE];
  char *text[RECORD_TEXTS], *class_names; /* owned */
  int texts;
};

/* The options' values as text and what the data set says; nothing of what is given is kept. STATUS_INPUT: no
 * memory. */
enum status record_create(const struct train_options *options, const struct dataset *dataset,
                          const float mean[4], const float std[4], struct record *record);
void record_destroy(struct record *record); /* also a zeroed one */

/* STATUS_INPUT if a strict value differs from the checkpoint's, or the order of an epoch that was begun; a
 * warning for each other one that does (but
 * --epochs, which may grow). */
enum status record_compare(const struct record *record, const struct checkpoint *checkpoint);

/* Reads "0.5,0.4,0.3" into out[4] and returns how many there were; 0: not such a list. */
int record_numbers(const char *text, float out[4]);

#endif
