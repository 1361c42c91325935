/* What a checkpoint holds of a trained model: its kind, its input, its classes, its arrays. For commands that
 * use a model without training it. */
#ifndef CONVOY_APP_TRAINED_H
#define CONVOY_APP_TRAINED_H

#include "app/checkpoint.h"
#include "model/net/net.h"

struct trained {
  struct checkpoint *checkpoint; /* owned */
  struct graph *graph;           /* owned; as the model's file builds it, not fused */
  const char *model;             /* its name; the checkpoint's */
  float mean[4], std[4];         /* per channel, of pixels scaled to 0..1 */
  char **class_name;             /* [graph->classes], owned; "0", "1", … if the data had no names */
};

/* Opens a checkpoint, or the newest of a run's folder. STATUS_INPUT if there is none or it does not say what
 * is needed; STATUS_STORAGE if it is damaged. One process does it. */
enum status trained_open(const char *path, struct trained *trained);
void trained_close(struct trained *trained); /* also a zeroed one */

/* As checkpoint_read; the weights of a checkpoint with low-rank adapters (train --lora) have them merged. */
enum status trained_fill(const struct checkpoint *checkpoint, const struct checkpoint_item *items, int count);

/* Loads all of the net's parameters and statistics so. */
enum status trained_load(const struct checkpoint *checkpoint, struct backend *backend, struct net *net);

/* The model's arrays, read from the checkpoint, in the order of the graph's nodes: a node's parameters, then
 * its running statistics. */
struct trained_arrays {
  struct checkpoint_item *item; /* [count], owned; the names are the graph's */
  int count;
  int *first;    /* [graph->node_count + 1], owned: item[first[i]] begins node i's */
  float *memory; /* owned */
};
/* Lists a model's arrays and makes room for them, all zero. */
enum status trained_arrays_create(const struct graph *graph, struct trained_arrays *arrays);
enum status trained_read(const struct trained *trained, struct trained_arrays *arrays);
void trained_arrays_destroy(struct trained_arrays *arrays); /* also a zeroed one */

#endif
