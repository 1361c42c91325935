/* Fine-tuning: parts of a model that are not trained, and low-rank adapters beside its frozen filters and
 * matrices. Both are passes over a graph, between its building and graph_fuse. */
#ifndef CONVOY_MODEL_NET_ADAPT_H
#define CONVOY_MODEL_NET_ADAPT_H

#include "model/net/graph.h"

/* Freezes the parameters whose names match one of the comma-separated globs ("layer1.*,*.bias"; * also
 * matches dots). A batchnorm that has no other parameter left uses its running statistics from then on, in
 * training too. STATUS_INPUT: a pattern that matches none (the message has the nearest name), or nothing is
 * left to train. */
enum status graph_freeze(struct graph *graph, const char *patterns);

/* Low-rank adapters (Hu et al., 2021, arXiv 2106.09685) of the given rank: each convolution and matrix W but
 * the layer that gives the logits computes W x + alpha / rank B (A x), A `rank` filters of W's window, B a
 * matrix that starts as zero. All parameters but A, B and those of the logits' layer are frozen. W's layer
 * NAME has NAME.lora_A.weight (rank,R,S,C or rank,inputs) and NAME.lora_B.weight (K,1,1,rank or
 * outputs,rank). STATUS_INPUT: rank is below 1, or there is no layer to adapt. */
enum status graph_adapt(struct graph *graph, int rank, float alpha);

/* A's and B's names for a weight's, "conv1.weight"; false: the name is not a weight's. */
bool adapter_names(const char *weight, char a[GRAPH_NAME], char b[GRAPH_NAME]);
bool adapter_has_name(const char *name); /* is it A's or B's? */

/* The shapes of A and B for a weight's. */
void adapter_shapes(const struct tensor *weight, int rank, struct tensor *a, struct tensor *b);

/* weight += scale B A. */
void adapter_merge(const struct tensor *shape, int rank, float scale, const float *a, const float *b,
                   float *weight);

#endif
