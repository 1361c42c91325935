/* `convoy check`: launch, libraries, network, shared memory, data and the run's folder. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <libgen.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "app/check.h"
#include "data/dataset.h"
#include "model/backend/devices.h"
#include "model/base/clock.h"

static const double mib = 1048576.0;

/* ---- ranks ---- */

enum status check_ranks(struct check *check) {
  const struct world *world = check->world;
  struct check_result own;
  char text[384];
  int64_t expected = check->options.expect_ranks;
  if (expected > 0 && expected != world->size)
    check_say(&own, CHECK_FAIL, "check the launcher's number of tasks", "%d ranks, expected %" PRId64,
              world->size, expected);
  else if (check->placement && (placement_uneven(check->placement, world->size, text, sizeof text) ||
                                placement_tight(check->placement, world->size, text, sizeof text) ||
                                placement_hidden(check->placement, world->size, text, sizeof text) ||
                                placement_unfenced(world->nodes, text, sizeof text)))
    check_say(&own, CHECK_WARN, NULL, "%s", text);
  else
    check_say(&own, CHECK_OK, NULL, "%d on %d host%s", world->size, world->nodes,
              world->nodes == 1 ? "" : "s");
  return check_add(check, "ranks", &own);
}

/* ---- libraries ---- */

enum { VERSIONS_TEXT = 320 };

/* What this rank has loaded; false if it was compiled with others. */
static bool versions(char text[VERSIONS_TEXT]) {
  char mpi[160], hdf5[32], device[100] = "";
  bool same = checkpoint_library(hdf5, sizeof hdf5);
  world_library(mpi, sizeof mpi);
  mpi[strcspn(mpi, ",\t")] = '\0';
#ifdef CONVOY_CUDA
  same = cuda_versions(device, sizeof device) && same;
#endif
  snprintf(text, VERSIONS_TEXT, "convoy %s, %s, %s%s%s", CONVOY_VERSION, mpi, hdf5, device[0] ? ", " : "",
           device);
  return same;
}

enum status check_versions(struct check *check) {
  struct check_result own;
  char mine[VERSIONS_TEXT], first[VERSIONS_TEXT];
  memset(mine, 0, sizeof mine);
  bool same = versions(mine);
  memcpy(first, mine, sizeof first);
  TRY(world_broadcast(check->world, first, sizeof first, 0));
  if (strcmp(mine, first) != 0)
    check_say(&own, CHECK_FAIL, "load the same modules and LD_LIBRARY_PATH on every host",
              "not what rank 0 has loaded: %s", mine);
  else if (!same)
    check_say(&own, CHECK_WARN, "build again with the libraries that jobs load",
              "loaded, but compiled with others: %s", mine);
  else
    check_say(&own, CHECK_OK, NULL, "%s", mine);
  return check_add(check, "libraries", &own);
}

/* ---- network ---- */

bool check_interface(const char *wanted, const char *name) {
  bool exclude = *wanted == '^', match = false;
  if (exclude) wanted++;
  bool exact = *wanted == '=';
  if (exact) wanted++;
  while (*wanted && !match) {
    size_t length = strcspn(wanted, ",");
    match = length > 0 && strncmp(wanted, name, length) == 0 && (!exact || strlen(name) == length);
    wanted += length + (wanted[length] == ',');
  }
  return match != exclude;
}

/* "eth0 10.0.0.1, ib0 …" of the interfaces that are up and that NCCL may use; returns how many lead to other
 * hosts. */
static int list_interfaces(const char *wanted, char *text, size_t capacity, int *usable) {
  struct ifaddrs *list = NULL;
  size_t used = 0;
  int outside = 0;
  *usable = 0;
  text[0] = '\0';
  if (getifaddrs(&list) != 0) return 0;
  for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
    char address[INET_ADDRSTRLEN];
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP)) continue;
    if (wanted && !check_interface(wanted, i->ifa_name)) continue;
    struct sockaddr_in in;
    memcpy(&in, i->ifa_addr, sizeof in);
    (*usable)++;
    outside += !(i->ifa_flags & IFF_LOOPBACK);
    if (!inet_ntop(AF_INET, &in.sin_addr, address, sizeof address) || used >= capacity) continue;
    used += (size_t)snprintf(text + used, capacity - used, "%s%s %s", used ? ", " : "", i->ifa_name, address);
  }
  freeifaddrs(list);
  return outside;
}

/* A port that others could connect to; 0: none, errno says why. */
static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t length = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
  if (fd < 0) return 0;
  if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0 &&
      getsockname(fd, (struct sockaddr *)&address, &length) == 0)
    port = ntohs(address.sin_port);
  close(fd);
  return port;
}

enum status check_network(struct check *check) {
  struct check_result own;
  const char *wanted = getenv("NCCL_SOCKET_IFNAME");
  char text[256];
  int usable, outside = list_interfaces(wanted, text, sizeof text, &usable), port = free_port();
  if (port == 0)
    check_say(&own, CHECK_FAIL, "allow the ranks to listen for each other", "no TCP port can be opened: %s",
              strerror(errno));
  else if (wanted && usable == 0)
    check_say(&own, CHECK_FAIL, "see `ip address`; names match by prefix, after = exactly, after ^ not",
              "NCCL_SOCKET_IFNAME=%s fits no interface that is up", wanted);
  else if (outside == 0 && check->world->nodes > 1)
    check_say(&own, CHECK_WARN, "see `ip address` on that host",
              "only the loopback is up (%s), but there are %d hosts", text, check->world->nodes);
  else
    check_say(&own, CHECK_OK, NULL, "%s; ports can be opened", text[0] ? text : "no interface");
  return check_add(check, "network", &own);
}

/* ---- shared memory ---- */

enum status check_memory(struct check *check) {
  struct check_result own;
  struct statvfs file_system;
  static const char advice[] = "enlarge it: docker or podman --shm-size=1g, apptainer --bind /dev/shm";
  if (statvfs("/dev/shm", &file_system) != 0) {
    check_say(&own, CHECK_FAIL, advice, "/dev/shm: %s", strerror(errno));
  } else {
    double room = (double)file_system.f_bavail * (double)file_system.f_frsize / mib;
    enum check_state state = room < 16 ? CHECK_FAIL : room < 256 ? CHECK_WARN : CHECK_OK;
    check_say(&own, state, state == CHECK_OK ? NULL : advice, "/dev/shm has %.0f MiB free", room);
  }
  return check_add(check, "shm", &own);
}

/* ---- data ---- */

enum status check_data(struct check *check) {
  struct check_result own;
  struct dataset *dataset = NULL;
  if (!check->options.data[0]) return STATUS_OK;
  double begin = clock_seconds();
  enum status status = world_agree(check->world, dataset_open(check->world, check->options.data,
                                                              DATASET_TRAIN | DATASET_CHECKED, &dataset));
  double seconds = clock_seconds() - begin;
  check_say(&own, CHECK_OK, NULL, "-");
  if (status == STATUS_OK) {
    double bytes = (double)(dataset->train.count + dataset->test.count) *
                   (dataset->height * dataset->width * dataset->channels);
    check_say(&own, CHECK_OK, NULL,
              "%" PRId64 " training and %" PRId64
              " test images, every byte verified, %.0f MB/s over all ranks",
              dataset->train.count, dataset->test.count, bytes / seconds * 1e-6);
    dataset_close(dataset);
  }
  return check_add_status(check, "data", status, &own);
}

/* ---- the run's folder ---- */

/* The folder itself or the nearest that exists above it. */
static void nearest_folder(const char *path, char nearest[OPTION_TEXT]) {
  char work[OPTION_TEXT];
  struct stat info;
  snprintf(nearest, OPTION_TEXT, "%s", path);
  while (stat(nearest, &info) != 0 && errno == ENOENT) {
    snprintf(work, sizeof work, "%s", nearest);
    snprintf(nearest, OPTION_TEXT, "%s", dirname(work));
  }
}

/* Opens a file in the folder that has no name there in the end; -1: errno says why not. */
static int nameless_file(const char *folder) {
  char path[OPTION_TEXT + 16];
  snprintf(path, sizeof path, "%s/.checkXXXXXX", folder);
  int fd = mkstemp(path);
  if (fd >= 0) unlink(path);
  return fd;
}

static void look_at_folder(const char *folder, struct check_result *own) {
  struct statvfs file_system;
  struct stat info;
  if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) {
    check_say(own, CHECK_FAIL, "give another --out", "%s is not a folder", folder);
    return;
  }
  int fd = nameless_file(folder);
  if (fd < 0 || statvfs(folder, &file_system) != 0) {
    check_say(own, CHECK_FAIL, "give another --out", "%s cannot be written: %s", folder, strerror(errno));
    if (fd >= 0) close(fd);
    return;
  }
  bool locks = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  double room = (double)file_system.f_bavail * (double)file_system.f_frsize / mib;
  if (room < 1024)
    check_say(own, room < 64 ? CHECK_FAIL : CHECK_WARN,
              "free some or give another --out: five checkpoints must fit (resnet18: 90 MB each)",
              "%s has %.0f MiB free", folder, room);
  else if (!locks)
    check_say(own, CHECK_WARN, "do not start two jobs on one --out", "%s: this file system has no locks",
              folder);
  else
    check_say(own, CHECK_OK, NULL, "%s can be written and locked, %.1f GiB free", folder, room / 1024);
}

enum status check_out(struct check *check) {
  struct check_result own;
  char folder[OPTION_TEXT];
  if (!check->options.out[0]) return STATUS_OK;
  check_say(&own, CHECK_OK, NULL, "-");
  if (check->world->rank == 0) { /* which alone writes */
    nearest_folder(check->options.out, folder);
    look_at_folder(folder, &own);
  }
  return check_add(check, "out", &own);
}
