/* Definitions of the optimizers: SGD as PyTorch's, Adam (Kingma and Ba, 2015), AdamW (Loshchilov and Hutter,
 * 2019), and the running statistics' moving mean. */
#include "tests/reference/reference.h"

#include <math.h>

static void sgd(const struct update_desc *desc, double rate, double decay, double *w, double gradient,
                double *m) {
  double d = gradient + decay * *w;
  *m = (double)desc->momentum * *m + d;
  *w -= rate * (desc->nesterov ? d + (double)desc->momentum * *m : *m);
}

static void adam(const struct update_desc *desc, const struct step_row *row, double decay, double *w,
                 double gradient, double *m, double *v) {
  double rate = (double)row->learning_rate, beta1 = (double)desc->beta1, beta2 = (double)desc->beta2;
  double d = gradient;
  if (desc->kind == OPTIMIZER_ADAMW)
    *w -= rate * decay * *w;
  else
    d += decay * *w;
  *m = beta1 * *m + (1 - beta1) * d;
  *v = beta2 * *v + (1 - beta2) * d * d;
  double mean = *m / (double)row->correction1, square = *v / (double)row->correction2;
  *w -= rate * mean / (sqrt(square) + (double)desc->epsilon);
}

void reference_update(const struct update_desc *desc, const struct step_row *row, double *params,
                      const double *gradients, double *slot0, double *slot1) {
  double mix = (double)desc->statistic_momentum;
  for (int64_t i = 0; i < desc->parameter_count; i++) {
    double decay = i < desc->decay_count ? (double)desc->weight_decay : 0;
    if (desc->kind == OPTIMIZER_SGD)
      sgd(desc, (double)row->learning_rate, decay, &params[i], gradients[i], &slot0[i]);
    else
      adam(desc, row, decay, &params[i], gradients[i], &slot0[i], &slot1[i]);
  }
  for (int64_t i = desc->parameter_count; i < desc->total_count; i++)
    params[i] = (1 - mix) * params[i] + mix * gradients[i];
}
