/* What a fuzz target needs that runs code in child processes (data/child.h) as the program does. To be linked
 * with
 * --wrap=send and --wrap=__sanitizer_cov_8bit_counters_init.
 *
 * Coverage: when a child sends something, its counters are copied to shared memory, which libFuzzer takes for
 * counters of this process. Reports: a sanitizer's report in a child ends the child without an artifact of
 * libFuzzer's, since for this process its death must be a refusal like any other. The reports themselves go
 * to the log_path of ASAN_OPTIONS, where tests/fuzz.sh fails on each that lies in Convoy's own code. */
#ifndef CONVOY_TESTS_FUZZ_GUARDED_H
#define CONVOY_TESTS_FUZZ_GUARDED_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <sanitizer/common_interface_defs.h>

enum { GUARDED_COUNTERS = 1 << 14 }; /* whole pages */

static uint8_t guarded_shared[GUARDED_COUNTERS]
    __attribute__((section("__libfuzzer_extra_counters"), aligned(1 << 12), used));
static uint8_t *guarded_begin, *guarded_end; /* the counters of this program */
static volatile int guarded_child;

void __real___sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end);
void __wrap___sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end);
ssize_t __real_send(int socket, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int socket, const void *data, size_t bytes, int flags);

void __wrap___sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end) {
  guarded_begin = begin;
  guarded_end = end;
  __real___sanitizer_cov_8bit_counters_init(begin, end);
}

ssize_t __wrap_send(int socket, const void *data, size_t bytes, int flags) {
  size_t count = (size_t)(guarded_end - guarded_begin);
  if (guarded_child)
    memcpy(guarded_shared, guarded_begin, count < GUARDED_COUNTERS ? count : GUARDED_COUNTERS);
  return __real_send(socket, data, bytes, flags);
}

static void guarded_die(void) {}

static void guarded_in_child(void) {
  guarded_child = 1;
  __sanitizer_set_death_callback(guarded_die);
}

static void guarded_start(void) {
  if (pthread_atfork(NULL, NULL, guarded_in_child) != 0) abort();
  if (mmap(guarded_shared, sizeof guarded_shared, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    abort();
}

#endif
