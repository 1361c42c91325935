/* The options of `convoy train`. */
#ifndef CONVOY_APP_TRAIN_OPTIONS_H
#define CONVOY_APP_TRAIN_OPTIONS_H

#include "app/options.h"

enum augment { AUGMENT_FLIP = 1, AUGMENT_CROP = 2, AUGMENT_CUTOUT = 4 };

extern const char *const backend_choices[];   /* as backend_find takes them */
extern const char *const precision_choices[]; /* by enum precision */
extern const char *const optimizer_choices[]; /* by enum optimizer_kind */

/* Integers that are 0 were not given unless the table gives a default. */
struct train_options {
  char data[OPTION_TEXT], out[OPTION_TEXT], config[OPTION_TEXT], model[OPTION_TEXT];
  char init[OPTION_TEXT], freeze[OPTION_TEXT], metrics[OPTION_TEXT], tensorboard[OPTION_TEXT]; /* "": none */
  int64_t epochs, steps, batch, seed;
  int64_t lora;      /* the adapters' rank; 0: none */
  double lora_alpha; /* 0 without adapters */
  int optimizer;     /* enum optimizer_kind */
  double lr, momentum, beta1, beta2, epsilon, weight_decay;
  bool nesterov;
  int schedule; /* enum schedule_kind */
  int scale_lr; /* enum schedule_scale */
  int64_t warmup_steps, base_batch;
  double label_smoothing;
  int augment;         /* sum of enum augment */
  int crop_fill;       /* 1: reflect */
  int shuffle;         /* 1: chunk */
  double memory_limit; /* MiB; 0: the default */
  int64_t crop_pad, cutout_size;
  struct option_triple mean, std; /* count 0: as measured on the training images */
  int precision;                  /* enum precision */
  int backend;                    /* index into backend_choices */
  int fuse;                       /* 1: on */
  int allreduce;                  /* 1: bf16 */
  int64_t threads, eval_batch, eval_every, log_every, checkpoint_every, keep, expect_ranks, init_timeout,
      lanes, comm_timeout;
  double checkpoint_minutes;
  bool resume, overwrite, deterministic, check, quiet, verbose;
  char plan_cache[OPTION_TEXT]; /* "": the user's cache folder */
};

extern const struct option_table train_table;

/* Parses and checks what one option alone cannot show. */
enum status train_options_parse(int argc, char **argv, struct train_options *options);

/* Warns of options that have no effect beside the others. */
enum status train_options_warn(const struct train_options *options);

#endif
