/* `convoy check`: the command, its rows and what it prints. */
#include "app/check.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app/option_rows.h"
#include "app/utf8.h"
#include "model/base/clock.h"
#include "model/base/deadline.h"
#include "model/base/log.h"

#define OPTION_STRUCT struct check_options
/* clang-format off */
static const struct option_row rows[] = {
    TEXT("data", data, NULL, "DIR", 0, "folder of shards: read and verify it"),
    TEXT("out", out, NULL, "DIR", 0, "a run's folder: may it be written, is there room"),
    ROW_BACKEND,
    CHOICE("precision", precision, precision_choices, "fp32", 0, "of the products"),
    INTEGER("expect-ranks", expect_ranks, 1, 1e6, NULL, "N", 0, "fail with another number of ranks"),
    INTEGER("init-timeout", init_timeout, 1, 86400, "180", "SECONDS", 0, "for each part in which ranks wait for each other"),
    FLAG("json", json, 0, "one JSON object instead of a table"),
};
/* clang-format on */
const struct option_table check_table = OPTION_TABLE(
    "check",
    "Checks machine, job and data before a run; exit code 0 (warnings allowed) or 2. Start it as the "
    "run will be.",
    rows);
static const char *const states[] = {"ok", "warn", "fail"};

/* ---- rows ---- */

void check_say(struct check_result *result, enum check_state state, const char *advice, const char *format,
               ...) {
  va_list arguments;
  memset(result, 0, sizeof *result);
  result->state = (int)state;
  snprintf(result->advice, sizeof result->advice, "%s", advice ? advice : "");
  va_start(arguments, format);
  vsnprintf(result->found, sizeof result->found, format, arguments);
  va_end(arguments);
}

enum status check_add(struct check *check, const char *name, const struct check_result *own) {
  const struct world *world = check->world;
  struct check_row mine, *row = &check->row[check->count++];
  struct check_row *all = calloc((size_t)world->size, sizeof *all);
  enum status status = all ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for %d results", world->size);
  TRY_OUT(world_agree(world, status));
  memset(&mine, 0, sizeof mine);
  mine.rank = world->rank;
  snprintf(mine.host, sizeof mine.host, "%s", world->host);
  mine.result = *own;
  TRY_OUT(world_allgather(world, &mine, sizeof mine, all));
  int worst = 0;
  for (int r = 1; r < world->size; r++)
    if (all[r].result.state > all[worst].result.state) worst = r;
  *row = all[worst];
  row->name = name;
out:
  free(all);
  return status;
}

enum status check_add_status(struct check *check, const char *name, enum status status,
                             const struct check_result *own) {
  struct check_result result = *own;
  if (status == STATUS_COMM) return status;
  if (status != STATUS_OK && error_message()[0]) {
    check_say(&result, CHECK_FAIL, NULL, "%s", error_message());
    error_clear();
  }
  return check_add(check, name, &result);
}

/* ---- output ---- */

static void print_table(const struct check *check) {
  for (int r = 0; check->placement && r < check->world->size; r++) {
    const struct placement *p = &check->placement[r];
    printf("rank %d: %s, %s, %d of %d cores%s%s\n", r, p->host, p->device, p->cores, p->cores_there,
           p->visible[0] ? ", CUDA_VISIBLE_DEVICES=" : "", p->visible);
  }
  for (int i = 0; i < check->count; i++) {
    const struct check_row *row = &check->row[i];
    bool good = row->result.state == CHECK_OK;
    printf("%-4s  %-10s  ", states[row->result.state], row->name);
    if (!good && check->world->size > 1) printf("rank %d, %s: ", row->rank, row->host);
    printf("%s\n", row->result.found);
    if (row->result.advice[0]) printf("                  → %s\n", row->result.advice);
  }
}

static cJSON *json_rows(const struct check *check) {
  cJSON *list = cJSON_CreateArray();
  for (int i = 0; i < check->count; i++) {
    const struct check_row *row = &check->row[i];
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "check", row->name);
    cJSON_AddStringToObject(item, "state", states[row->result.state]);
    cJSON_AddNumberToObject(item, "rank", row->rank);
    cJSON_AddStringToObject(item, "host", row->host);
    cJSON_AddStringToObject(item, "found", row->result.found);
    cJSON_AddStringToObject(item, "advice", row->result.advice);
    cJSON_AddItemToArray(list, item);
  }
  return list;
}

static cJSON *json_ranks(const struct check *check) {
  cJSON *list = cJSON_CreateArray();
  for (int r = 0; check->placement && r < check->world->size; r++) {
    cJSON *item = cJSON_CreateObject();
    cJSON_AddNumberToObject(item, "rank", r);
    cJSON_AddStringToObject(item, "host", check->placement[r].host);
    cJSON_AddStringToObject(item, "device", check->placement[r].device);
    cJSON_AddStringToObject(item, "cuda_visible_devices", check->placement[r].visible);
    cJSON_AddNumberToObject(item, "cores", check->placement[r].cores);
    cJSON_AddItemToArray(list, item);
  }
  return list;
}

static enum status print_json(const struct check *check, int failed) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddBoolToObject(object, "ready", failed == 0);
  cJSON_AddItemToObject(object, "checks", json_rows(check));
  cJSON_AddItemToObject(object, "ranks", json_ranks(check));
  char *text = cJSON_PrintUnformatted(object);
  cJSON_Delete(object);
  if (!text) return RAISE(STATUS_INPUT, "no memory for the report");
  utf8_mend(text);
  printf("%s\n", text);
  free(text);
  return STATUS_OK;
}

/* Rank 0: prints; fails if a check did. */
static enum status conclude(const struct check *check) {
  int failed = 0;
  const char *first = NULL;
  for (int i = 0; i < check->count; i++)
    if (check->row[i].result.state == CHECK_FAIL && failed++ == 0) first = check->row[i].name;
  if (check->options.json)
    TRY(print_json(check, failed));
  else
    print_table(check);
  if (failed)
    return RAISE(STATUS_INPUT, "%d of %d checks failed, the first: %s; correct it and check again", failed,
                 check->count, first);
  return STATUS_OK;
}

/* ---- the command ---- */

static enum status (*const part[])(struct check *) = {check_device,   check_ranks,  check_versions,
                                                      check_network,  check_memory, check_allreduce,
                                                      check_products, check_data,   check_out};

static enum status make_checks(struct check *check) {
  const struct check_options *o = &check->options;
  static const char late[] =
      "error: a check did not end within --init-timeout; ranks wait for one that does not answer\n";
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    if (part[i] == check_data)
      deadline_clear(); /* large data take their time */
    else
      deadline_set((unsigned)o->init_timeout, STATUS_COMM, check->world->rank == 0 ? late : NULL);
    TRY(part[i](check));
  }
  deadline_clear();
  return STATUS_OK;
}

enum status check_command(int argc, char **argv, const struct world *world) {
  struct check check = {.world = world};
  TRY(options_agree(world, &check_table, &check.options,
                    options_parse(&check_table, argc, argv, &check.options)));
  log_open(world->rank, world->host, check.options.json);
  enum status status = make_checks(&check);
  if (status == STATUS_OK) status = world_agree(world, world->rank == 0 ? conclude(&check) : STATUS_OK);
  if (world_agreed(world, status) && check.backend) check.backend->table->close(check.backend);
  free(check.placement);
  return status;
}
