/* ResNet-20 for CIFAR (He et al., 2016, section 4.2), with 1x1 convolutions as shortcuts where shapes change.
 */
#include "model/zoo/resnet.h"

int resnet20_build(struct graph *graph);

int resnet20_build(struct graph *graph) {
  return resnet_build(graph, 3, (const int[]){16, 32, 64}, 3);
}
