/* The parts of a start; see start.h. */
#include "app/start.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model/base/clock.h"

enum { START_TIME = 22 /* field of /proc/PID/stat: proc(5) */ };

/* Seconds since this process was launched, to 10 ms; 0 where the system does not tell. */
static double age(void) {
  char text[1024] = "";
  unsigned long long ticks = 0;
  struct timespec now;
  FILE *file = fopen("/proc/self/stat", "r");
  if (!file) return 0;
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = '\0';
  const char *at = strrchr(text, ')'); /* the program's name, field 2, may hold anything */
  for (int field = 2; at && field < START_TIME; field++) at = strchr(at + 1, ' ');
  if (!at || sscanf(at, "%llu", &ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  double launched = (double)ticks / (double)sysconf(_SC_CLK_TCK);
  double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - launched;
  return seconds > 0 ? seconds : 0;
}

static void add(struct start *start, const char *name, double seconds) {
  if (start->count < START_PARTS)
    start->part[start->count++] = (struct start_part){.name = name, .seconds = seconds};
}

void start_begin(struct start *start, const char *name) {
  double now = clock_seconds(), passed = age();
  *start = (struct start){.mark = now, .launched = now - passed};
  add(start, name, passed);
}

void start_part(struct start *start, const char *name) {
  double now = clock_seconds();
  add(start, name, now - start->mark);
  start->mark = now;
}

void start_part_within(struct start *start, const char *name, double seconds) {
  add(start, name, seconds);
  start->mark += seconds;
}

void start_end(struct start *start) {
  start->seconds = 0;
  for (int i = 0; i < start->count; i++) start->seconds += start->part[i].seconds;
}

void start_text(const struct start *start, char *text, size_t capacity) {
  size_t used = 0;
  for (int i = 0; i < start->count && used < capacity; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s %.2f%s, ", start->part[i].name,
                             start->part[i].seconds, i == 0 ? " s" : "");
  if (used < capacity) snprintf(text + used, capacity - used, "first step at %.2f s", start->seconds);
}
