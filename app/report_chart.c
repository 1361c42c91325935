/* Curves as SVG; see report.h. Colours and fonts are the page's (classes). */
#include <math.h>

#include "app/report.h"

enum { WIDTH = 640, HEIGHT = 320, LEFT = 64, RIGHT = 16, TOP = 34, BOTTOM = 44, TICKS = 6, DOTS = 40 };

struct axis {
  double low, high, step; /* low and high are multiples of step */
};

/* Rounds outwards to multiples of 1, 2 or 5 times a power of ten, about TICKS of them. */
static struct axis axis_of(double low, double high) {
  if (high - low < 1e-12 * fmax(fabs(low), fabs(high)) || high == low) {
    double around = high == 0 ? 1 : 0.1 * fabs(high);
    low -= around;
    high += around;
  }
  double raw = (high - low) / TICKS, power = pow(10, floor(log10(raw))), rest = raw / power;
  double step = power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
  return (struct axis){step * floor(low / step + 1e-9), step * ceil(high / step - 1e-9), step};
}

static struct axis axis_over(const struct report_series *series, int count, bool vertical) {
  double low = INFINITY, high = -INFINITY;
  for (int s = 0; s < count; s++)
    for (int64_t i = 0; i < series[s].count; i++) {
      double value = vertical ? series[s].y[i] : series[s].x[i];
      low = fmin(low, value);
      high = fmax(high, value);
    }
  return axis_of(low, high);
}

static double place_x(const struct axis *axis, double value) {
  return LEFT + (WIDTH - LEFT - RIGHT) * (value - axis->low) / (axis->high - axis->low);
}

static double place_y(const struct axis *axis, double value) {
  return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - axis->low) / (axis->high - axis->low);
}

static void draw_grid(FILE *page, const struct axis *x, const struct axis *y) {
  for (int i = 0; i <= (int)lround((y->high - y->low) / y->step); i++) {
    double value = y->low + i * y->step, at = place_y(y, value);
    fprintf(page, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, WIDTH - RIGHT,
            at, at);
    fprintf(page, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 6,
            at + 4, fabs(value) < 1e-9 * y->step ? 0 : value);
  }
  for (int i = 0; i <= (int)lround((x->high - x->low) / x->step); i++) {
    double value = x->low + i * x->step, at = place_x(x, value);
    fprintf(page, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", at,
            HEIGHT - BOTTOM + 18, fabs(value) < 1e-9 * x->step ? 0 : value);
  }
}

static void draw_curve(FILE *page, const struct axis *x, const struct axis *y,
                       const struct report_series *series, int colour) {
  fprintf(page, "<polyline class=\"run%d\" points=\"", colour);
  for (int64_t i = 0; i < series->count; i++)
    fprintf(page, "%s%.1f,%.1f", i ? " " : "", place_x(x, series->x[i]), place_y(y, series->y[i]));
  fprintf(page, "\"/>\n");
  for (int64_t i = 0; series->count <= DOTS && i < series->count; i++)
    fprintf(page, "<circle class=\"run%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", colour,
            place_x(x, series->x[i]), place_y(y, series->y[i]));
}

int report_chart(FILE *page, const char *title, const char *x_title, const struct report_series *series,
                 int count) {
  int drawn = 0;
  for (int s = 0; s < count; s++) drawn += series[s].count > 0;
  if (drawn == 0) return 0;
  struct axis x = axis_over(series, count, false), y = axis_over(series, count, true);
  fprintf(page, "<figure><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", WIDTH, HEIGHT, title);
  fprintf(page, "<text class=\"title\" x=\"%d\" y=\"20\">%s</text>\n", LEFT, title);
  draw_grid(page, &x, &y);
  fprintf(page, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", WIDTH - RIGHT,
          HEIGHT - 8, x_title);
  for (int s = 0; s < count; s++)
    if (series[s].count > 0) draw_curve(page, &x, &y, &series[s], s);
  fprintf(page, "</svg></figure>\n");
  return drawn;
}
