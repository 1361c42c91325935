/* The live line and the plain lines of progress; see progress.h. */
#include "app/progress.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "model/base/file.h"
#include "model/base/log.h"

static const double live_interval = 0.1, plain_interval = 10;

/* The log's hook has no argument: this is the display that it clears. */
static struct progress *shown;

static void clear(struct progress *progress);

static void clear_shown(void) {
  if (shown) clear(shown);
}

/* A descriptor of the terminal that stdout ends at, -1 if it is none. Open MPI gives a rank a pseudo-terminal
 * and copies it to its launcher's stdout, so the launcher (the parent process) is asked there. */
static int terminal_open(void) {
  if (!isatty(STDOUT_FILENO)) return -1;
  if (!getenv("OMPI_COMM_WORLD_SIZE")) return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/fd/1", (long)getppid());
  int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0 && !isatty(fd)) {
    close(fd);
    return -1;
  }
  return fd;
}

static int terminal_columns(int fd) {
  struct winsize size;
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void progress_open(struct progress *progress, bool quiet, int64_t first_step) {
  *progress = (struct progress){.quiet = quiet, .first_step = first_step, .fd = -1};
  if (quiet) return;
  progress->fd = terminal_open();
  progress->live = progress->fd >= 0;
  shown = progress;
  log_on_line(clear_shown);
}

bool progress_due(const struct progress *progress, double seconds) {
  return !progress->quiet && seconds >= progress->next;
}

/* "1:02:03" or "02:03". */
static void time_text(double seconds, char *text, size_t capacity) {
  if (!(seconds >= 0 && seconds < 1e7)) {
    snprintf(text, capacity, "?");
    return;
  }
  long whole = (long)(seconds + 0.5), hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours)
    snprintf(text, capacity, "%ld:%02ld:%02ld", hours, minutes, whole % 60);
  else
    snprintf(text, capacity, "%02ld:%02ld", minutes, whole % 60);
}

/* Appends as long as it fits in `columns`: a field stands whole or not at all. */
static int add_field(char *text, int used, int columns, const char *field) {
  const char *gap = used ? "  " : "";
  int length = (int)(strlen(gap) + strlen(field));
  if (used + length > columns) return used;
  return used + sprintf(text + used, "%s%s", gap, field);
}

static void add_bar(char field[24], double part) {
  int full = (int)(part * 20);
  field[0] = '[';
  for (int i = 0; i < 20; i++) field[1 + i] = i < full ? '=' : i == full ? '>' : ' ';
  memcpy(field + 21, "]", 2);
}

int progress_text(const struct progress_values *values, int64_t first_step, int columns, char *text,
                  int capacity) {
  if (columns > capacity - 1) columns = capacity - 1;
  text[0] = '\0';
  char field[96], time[32];
  double part = values->steps > 0 ? (double)values->step / (double)values->steps : 0;
  snprintf(field, sizeof field, "epoch %" PRId64 "/%" PRId64, values->epoch, values->epochs);
  int used = add_field(text, 0, columns, field);
  snprintf(field, sizeof field, "step %" PRId64 "/%" PRId64, values->step, values->steps);
  used = add_field(text, used, columns, field);
  if (isfinite(values->loss)) {
    snprintf(field, sizeof field, "loss %.4f", values->loss);
    used = add_field(text, used, columns, field);
  }
  if (values->images_per_s > 0 && isfinite(values->images_per_s)) {
    snprintf(field, sizeof field, "%.0f images/s", values->images_per_s);
    used = add_field(text, used, columns, field);
  }
  int64_t done = values->step - first_step;
  if (done > 0) {
    time_text(values->seconds / (double)done * (double)(values->steps - values->step), time, sizeof time);
    snprintf(field, sizeof field, "%s left", time);
    used = add_field(text, used, columns, field);
  }
  add_bar(field, part < 0 ? 0 : part > 1 ? 1 : part);
  return add_field(text, used, columns, field);
}

/* A terminal that went away must not end a run: what cannot be written is dropped. */
static void put(const char *text, size_t length) {
  (void)file_write(STDOUT_FILENO, text, length, NULL);
}

/* The cursor goes back to where the line begins, so that what others print there begins a line. */
static void draw(struct progress *progress, const struct progress_values *values) {
  char text[256], line[520];
  int columns = terminal_columns(progress->fd) - 1; /* the last column would wrap */
  int used = progress_text(values, progress->first_step, columns, text, sizeof text);
  log_lock();
  int blank = progress->drawn > used ? progress->drawn - used : 0;
  if (used + blank > columns) blank = columns > used ? columns - used : 0;
  const char *wipe = progress->drawn > columns ? "\033[J" : "";
  fflush(stdout);
  int length = snprintf(line, sizeof line, "\r%s%s%*s\r", wipe, text, blank, "");
  put(line, (size_t)length);
  progress->drawn = used;
  log_unlock();
}

void progress_update(struct progress *progress, const struct progress_values *values) {
  if (!progress_due(progress, values->seconds)) return;
  progress->next = values->seconds + (progress->live ? live_interval : plain_interval);
  if (progress->live) {
    draw(progress, values);
    return;
  }
  char text[256];
  char *bar;
  progress_text(values, progress->first_step, sizeof text - 1, text, sizeof text);
  if ((bar = strstr(text, "  ["))) *bar = '\0';
  log_info("%s", text);
}

/* Removes the live line; a later update draws it again. */
static void clear(struct progress *progress) {
  log_lock();
  if (progress->live) { /* also where no line is drawn: what was typed, such as ^C, may stand there */
    char line[520];
    int columns = terminal_columns(progress->fd) - 1;
    if (columns > (int)sizeof line - 3) columns = (int)sizeof line - 3;
    int length = snprintf(line, sizeof line, "\r%*s\r", columns, "");
    progress->drawn = 0;
    fflush(stdout);
    put(line, (size_t)length);
  }
  log_unlock();
}

void progress_close(struct progress *progress) {
  log_lock();
  clear(progress);
  if (shown == progress) {
    shown = NULL;
    log_on_line(NULL);
  }
  log_unlock();
  if (progress->fd > 2) close(progress->fd);
  *progress = (struct progress){.quiet = true, .fd = -1};
}
