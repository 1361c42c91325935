/* Who the watchdog holds responsible, and its links: silent, dead and stuck ranks, and what is none of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/watchdog_judge.h"
#include "app/watchdog_link.h"

enum { RANKS = 4 };
static const struct watchdog_limits limits = {.silence = 10, .stall = 20, .grace = 0.5};

/* All beat at second 100 and are in step 7. */
static void all_well(struct watchdog_peer peers[RANKS]) {
  for (int r = 0; r < RANKS; r++)
    peers[r] = (struct watchdog_peer){.watched = true, .heard = 100, .step = 7, .waiting = true};
}

static void expect(const struct watchdog_peer *peers, double moved, double now, enum watchdog_fault fault,
                   int rank) {
  struct watchdog_verdict verdict = watchdog_judge(peers, RANKS, moved, &limits, now);
  assert_int_equal(verdict.fault, fault);
  if (fault != WATCHDOG_WELL) assert_int_equal(verdict.rank, rank);
}

static void silence_is_counted_from_the_last_beat(void **state) {
  (void)state;
  struct watchdog_peer peers[RANKS];
  all_well(peers);
  peers[2].heard = 95;
  expect(peers, 100, 104.9, WATCHDOG_WELL, 0);
  expect(peers, 100, 105.1, WATCHDOG_SILENT, 2);
  peers[3].heard = 94;
  expect(peers, 100, 105.1, WATCHDOG_SILENT, 3); /* the first to fall silent */
  peers[3].gone = true;
  expect(peers, 100, 105.1, WATCHDOG_SILENT, 2);
  peers[2].watched = false;
  expect(peers, 100, 105.1, WATCHDOG_WELL, 0);
}

static void a_broken_link_means_death_unless_it_said_goodbye(void **state) {
  (void)state;
  struct watchdog_peer peers[RANKS];
  all_well(peers);
  peers[1].closed = 100;
  expect(peers, 100, 100.4, WATCHDOG_WELL, 0);
  expect(peers, 100, 100.6, WATCHDOG_DEAD, 1);
  peers[3].heard = 80;
  expect(peers, 100, 100.6, WATCHDOG_DEAD, 1);
  peers[3].heard = 100;
  peers[1].gone = true;
  expect(peers, 100, 105, WATCHDOG_WELL, 0);
}

static void a_stuck_job_names_whom_the_others_wait_for(void **state) {
  (void)state;
  struct watchdog_peer peers[RANKS];
  all_well(peers);
  for (int r = 0; r < RANKS; r++) peers[r].heard = 130;
  peers[2].step = 6;
  expect(peers, 111, 130, WATCHDOG_WELL, 0); /* someone moved a moment ago: a long step, a load */
  expect(peers, 109, 130, WATCHDOG_STUCK, 2);
  peers[3].waiting = false; /* stands still without waiting for anybody */
  expect(peers, 109, 130, WATCHDOG_STUCK, 3);
  peers[0].watched = false; /* may move unheard */
  expect(peers, 109, 130, WATCHDOG_WELL, 0);
}

static void messages_come_whole_and_in_order(void **state) {
  (void)state;
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  struct watchdog_link to = {.fd = pair[0]}, from = {.fd = pair[1]};
  struct watchdog_message got, first, second;
  memset(&first, 0, sizeof first); /* padding travels too */
  first.token = 5, first.step = 41, first.rank = 3, first.kind = WATCHDOG_BEAT;
  second = first;
  second.step = 42;
  assert_int_equal(watchdog_link_receive(&from, 5, &got), 0);
  assert_int_equal(send(pair[0], &first, 10, 0), 10); /* the network may cut it anywhere */
  assert_int_equal(watchdog_link_receive(&from, 5, &got), 0);
  assert_int_equal(send(pair[0], (const char *)&first + 10, sizeof first - 10, 0), sizeof first - 10);
  watchdog_link_send(&to, &second);
  assert_int_equal(watchdog_link_receive(&from, 5, &got), 1);
  assert_int_equal(got.step, 41);
  assert_int_equal(watchdog_link_receive(&from, 5, &got), 1);
  assert_int_equal(got.step, 42);
  watchdog_link_send(&to, &first);
  assert_int_equal(watchdog_link_receive(&from, 6, &got), -1); /* of another job */
  watchdog_link_close(&to);
  assert_int_equal(watchdog_link_receive(&from, 5, &got), -1);
  watchdog_link_close(&from);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(silence_is_counted_from_the_last_beat),
      cmocka_unit_test(a_broken_link_means_death_unless_it_said_goodbye),
      cmocka_unit_test(a_stuck_job_names_whom_the_others_wait_for),
      cmocka_unit_test(messages_come_whole_and_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
