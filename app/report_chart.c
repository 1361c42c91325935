/* Curves and bars as SVG; see report_parts.h. Colours and fonts are the page's (classes). */
#include <math.h>

#include "app/report_parts.h"
#include "app/utf8.h"

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
                       const struct report_series *series) {
  fprintf(page, "<polyline class=\"run%d%s\" points=\"", series->run, series->dashed ? " dashed" : "");
  for (int64_t i = 0; i < series->count; i++)
    fprintf(page, "%s%.1f,%.1f", i ? " " : "", place_x(x, series->x[i]), place_y(y, series->y[i]));
  fprintf(page, "\"/>\n");
  for (int64_t i = 0; series->count <= DOTS && i < series->count; i++)
    fprintf(page, "<circle class=\"run%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", series->run,
            place_x(x, series->x[i]), place_y(y, series->y[i]));
}

static void begin_figure(FILE *page, const char *title, int height) {
  fprintf(page, "<figure><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", WIDTH, height, title);
  fprintf(page, "<text class=\"title\" x=\"%d\" y=\"20\">%s</text>\n", LEFT, title);
}

void report_chart(FILE *page, const struct report_figure *figure) {
  const struct report_series *series = figure->series;
  if (figure->count == 0) return;
  struct axis x = axis_over(series, figure->count, false), y = axis_over(series, figure->count, true);
  begin_figure(page, figure->title, HEIGHT);
  draw_grid(page, &x, &y);
  fprintf(page, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", WIDTH - RIGHT,
          HEIGHT - 8, figure->x_title);
  for (int s = 0; s < figure->count; s++) draw_curve(page, &x, &y, &series[s]);
  fprintf(page, "</svg></figure>\n");
}

/* ---- bars ---- */

enum { BAR = 18, BAR_STEP = 44, KEY_STEP = 98 };

static void draw_bar(FILE *page, const struct report_bar *bar, int y, double most, const char *unit) {
  double x = LEFT, sum = 0;
  for (int p = 0; p < REPORT_PARTS; p++) {
    double width = (WIDTH - LEFT - RIGHT) * bar->part[p] / most;
    if (width > 0)
      fprintf(page, "<rect class=\"part%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>", p, x, y,
              width, BAR);
    x += width;
    sum += bar->part[p];
  }
  fprintf(page, "<text class=\"tick\" x=\"%d\" y=\"%d\">", LEFT, y - 5);
  report_put_text(page, bar->label);
  if (unit[0] != '%') fprintf(page, ": %.3g %s", sum, unit);
  fputs("</text>\n", page);
}

void report_bar_chart(FILE *page, const struct report_bars *bars) {
  double most = 0;
  if (bars->count == 0) return;
  for (int b = 0; b < bars->count; b++) {
    double sum = 0;
    for (int p = 0; p < REPORT_PARTS; p++) sum += bars->bar[b].part[p];
    most = fmax(most, sum);
  }
  if (most <= 0) return;
  begin_figure(page, bars->title, TOP + 28 + bars->count * BAR_STEP);
  for (int p = 0; p < REPORT_PARTS && bars->name[p]; p++) {
    int x = LEFT + (p * KEY_STEP);
    fprintf(page, "<rect class=\"part%d\" x=\"%d\" y=\"%d\" width=\"10\" height=\"10\"/>", p, x, TOP);
    fprintf(page, "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n", x + 14, TOP + 9, bars->name[p]);
  }
  for (int b = 0; b < bars->count; b++)
    draw_bar(page, &bars->bar[b], TOP + 38 + b * BAR_STEP, most, bars->unit);
  fputs("</svg></figure>\n", page);
}

void report_put_text(FILE *page, const char *text) {
  for (int length; *text; text += length ? length : 1) {
    length = utf8_length(text);
    switch (length ? *text : '\0') {
    case '<':
      fputs("&lt;", page);
      break;
    case '>':
      fputs("&gt;", page);
      break;
    case '&':
      fputs("&amp;", page);
      break;
    case '"':
      fputs("&quot;", page);
      break;
    case '\0':
      fputc('?', page);
      break;
    default:
      fwrite(text, 1, (size_t)length, page);
    }
  }
}
