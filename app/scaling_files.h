/* The files of `convoy bench scaling` and `predict`: tables, and plots by gnuplot. Rank 0 only. */
#ifndef CONVOY_APP_SCALING_FILES_H
#define CONVOY_APP_SCALING_FILES_H

#include <stdbool.h>
#include <stdio.h>

#include "model/base/error.h"

/* Makes `folder` for the results NAME.csv; *made as folder_make gives it, for
 * folder_remove where the results do not come about. STATUS_INPUT if a former
 * result is there and `overwrite` is not set, or a file that may not be replaced (output.h); STATUS_STORAGE
 * if nothing can be written. */
enum status scaling_folder_open(const char *folder, const char *name, bool overwrite, size_t *made);

/* Text that grows; written whole or not at all. */
struct scaling_text {
  FILE *stream; /* to print to */
  char *data;
  size_t bytes;
};

/* STATUS_INPUT: no memory. */
enum status scaling_text_open(struct scaling_text *text);
/* Writes it to FOLDER/NAME and frees it, also if it cannot be written (STATUS_STORAGE). */
enum status scaling_text_close(struct scaling_text *text, const char *folder, const char *name);

/* Begins a gnuplot script that makes NAME.svg and NAME.png from files in its own folder, of width x height;
 * what is printed then is run once for each, and ends with scaling_script_end. */
void scaling_script_begin(FILE *stream, const char *name, int width, int height);
void scaling_script_end(FILE *stream);

/* Runs FOLDER/NAME.gp by gnuplot. What is missing or fails is said in a warning: the script is there to be
 * run again. */
void scaling_plot(const char *folder, const char *name);

#endif
