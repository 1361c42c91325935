/* Residual networks of basic blocks (He, Zhang, Ren, Sun: Deep residual learning for image recognition,
 * 2016). */
#ifndef CONVOY_MODEL_ZOO_RESNET_H
#define CONVOY_MODEL_ZOO_RESNET_H

#include "model/net/graph.h"

/* A 3x3 stem of width[0] filters, then `stages` stages of `blocks` basic blocks with width[i] filters; each
 * stage but the first halves the image. Where shapes change the shortcut is a 1x1 convolution and a
 * batchnorm. Names as torchvision's: conv1, bn1, layer1.0.conv1, …, layer2.0.downsample.0, fc. Returns the
 * logits. */
int resnet_build(struct graph *graph, int stages, const int *width, int blocks);

#endif
