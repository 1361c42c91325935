/* ResNet-18 with the stem that CIFAR's small images need: 3x3, stride 1, no max-pool. */
#include "model/zoo/resnet.h"

int resnet18_build(struct graph *graph);

int resnet18_build(struct graph *graph) {
  return resnet_build(graph, 4, (const int[]){64, 128, 256, 512}, 2);
}
