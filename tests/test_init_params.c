/* Initial parameters are a function of seed, name and place alone: each element is drawn here on its own, and
 * any number of threads gives the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/base/random.h"
#include "model/net/net_state.h"
#include "model/zoo/zoo.h"

static float drawn_alone(const struct layout_item *item, uint64_t seed, int64_t at) {
  struct random_key key = random_key(seed, RANDOM_INIT, random_stream(item->name));
  double pair[2];
  switch (item->init) {
  case INIT_ZERO:
    return 0;
  case INIT_ONE:
    return 1;
  case INIT_KAIMING_NORMAL:
    random_normal_pair(key, (uint64_t)(at - at % 2), pair);
    return (float)(sqrt(2.0 / item->fan) * pair[at % 2]);
  case INIT_UNIFORM_FAN_IN:
    return (float)(1 / sqrt((double)item->fan) * (2 * random_uniform(key, (uint64_t)at) - 1));
  }
  return NAN;
}

static void elements_are_functions_of_their_place(void **state) {
  (void)state;
  struct graph *graph;
  struct layout layout;
  enum { SEED = 11 };
  static const int threads[] = {1, 2, 5, 100};
  assert_int_equal(zoo_build("resnet18", 32, 32, 3, 10, &graph), STATUS_OK);
  assert_int_equal(layout_create(graph, &layout), STATUS_OK);
  size_t bytes = (size_t)layout.all_count * sizeof(float);
  float *one = calloc(1, bytes), *other = malloc(bytes);
  assert_true(one && other);
  init_params(&layout, SEED, 1, one);
  int64_t different = 0;
  for (int i = 0; i < layout.item_count; i++) {
    const struct layout_item *item = &layout.item[i];
    int64_t count = tensor_count(&item->tensor);
    for (int64_t k = 0; k < count; k += k < count - 300 && k > 300 ? 97 : 1) /* its ends, and some between */
      if (one[item->offset + k] != drawn_alone(item, SEED, k)) different++;
  }
  assert_int_equal(different, 0);
  for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
    memset(other, 0, bytes);
    init_params(&layout, SEED, threads[t], other);
    assert_memory_equal(one, other, bytes);
  }
  init_params(&layout, SEED + 1, 2, other);
  assert_memory_not_equal(one, other, bytes);
  free(one);
  free(other);
  layout_destroy(&layout);
  graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(elements_are_functions_of_their_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
