/* Initial values: each array is a function of (seed, its name), so it does not depend on ranks, backend or
 * order. */
#include "model/net/net_state.h"

#include <math.h>

#include "model/base/random.h"

static void fill_normal(struct random_key key, double deviation, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i += 2) {
    double pair[2];
    random_normal_pair(key, (uint64_t)i, pair);
    out[i] = (float)(deviation * pair[0]);
    if (i + 1 < count) out[i + 1] = (float)(deviation * pair[1]);
  }
}

static void fill_uniform(struct random_key key, double bound, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) out[i] = (float)(bound * (2 * random_uniform(key, (uint64_t)i) - 1));
}

void init_params(const struct layout *layout, uint64_t seed, float *host) {
  for (int i = 0; i < layout->item_count; i++) {
    const struct layout_item *item = &layout->item[i];
    struct random_key key = random_key(seed, RANDOM_INIT, random_stream(item->name));
    int64_t count = tensor_count(&item->tensor);
    float *out = host + item->offset;
    switch (item->init) {
    case INIT_ZERO:
    case INIT_ONE:
      for (int64_t k = 0; k < count; k++) out[k] = item->init == INIT_ONE ? 1.0f : 0.0f;
      break;
    case INIT_KAIMING_NORMAL:
      fill_normal(key, sqrt(2.0 / item->fan), count, out);
      break;
    case INIT_UNIFORM_FAN_IN:
      fill_uniform(key, 1 / sqrt((double)item->fan), count, out);
      break;
    }
  }
}
