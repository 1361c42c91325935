#!/usr/bin/env bash
# `convoy check`: ready on one rank and on two, as a table and as JSON; each check fails where it should, with exit 2 and
# one error line, and says what was found.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

data=$WORK/data
set_of "$data" 200 50
check=(check --backend cpu)

for count in 1 2; do
  ranks $count "${check[@]}" --data "$data" --out "$WORK/none/run" --expect-ranks $count
  expect 0 "np $count"
  # A busy machine may make one rank slow.
  grep -Ev '^warn  products' "$WORK/out.txt" | grep -Eq '^(warn|fail)' && fail "np $count: not all ok" "$WORK/out.txt"
  for name in device ranks libraries network shm products data out; do
    grep -Eq "^(ok  |warn)  $name  " "$WORK/out.txt" || fail "np $count: no $name" "$WORK/out.txt"
  done
  [ $count = 1 ] || grep -q '^ok    all-reduce .*every element right' "$WORK/out.txt" || fail "no all-reduce" "$WORK/out.txt"
  [ ! -e "$WORK/none" ] || fail "np $count: something was written"
  ranks $count "${check[@]}" --json --data "$data"
  expect 0 "np $count, JSON"
  python3 - "$WORK/out.txt" $count << 'END' || fail "np $count: the JSON" "$WORK/out.txt"
import json, sys
text = json.load(open(sys.argv[1]))
count = int(sys.argv[2])
assert text["ready"] is True and len(text["ranks"]) == count
names = [row["check"] for row in text["checks"]]
assert len(names) == 7 + (count > 1) and len(set(names)) == len(names), names
for row in text["checks"]:
    assert row["found"] and row["state"] in ("ok", "warn" if row["check"] == "products" else "ok"), row
    assert (row["advice"] == "") == (row["state"] == "ok"), row
END
  pass "np $count: ready"
done

# found STATE NAME PATTERN: the last run's table has that row; a failure ends with 2.
found() {
  if [ "$1" = fail ]; then
    expect 2 "$2: $3"
    grep -q '^error: .*checks failed' "$WORK/err.txt" || fail "$2: no error line" "$WORK/err.txt"
  else
    expect 0 "$2: $3"
  fi
  grep "^$1  *$2 " "$WORK/out.txt" | grep -q -- "$3" || fail "$2: no '$1 … $3'" "$WORK/out.txt" "$WORK/err.txt"
  pass "$1: $2: $3"
}
one() { # one WORD...: a program that ends in the checks of one rank
  code=0
  "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
}

ranks 2 "${check[@]}" --expect-ranks 3
one_error "--expect-ranks 3"
found fail ranks "2 ranks, expected 3"
ranks 2 "${check[@]}" --expect-ranks 3 --json
expect 2 "JSON of a failure"
python3 -c 'import json, sys; text = json.load(open(sys.argv[1])); assert text["ready"] is False
assert [row["check"] for row in text["checks"] if row["state"] == "fail"] == ["ranks"]' "$WORK/out.txt" || fail "JSON of a failure" "$WORK/out.txt"
plain "all other faults" || exit 0
if [ "$(nproc)" -gt 1 ]; then
  one taskset -c 0 "$CONVOY" "${check[@]}"
  found warn ranks "rank 0 may use one core"
  for chosen in "--bind-to core" "--map-by core" "--cpu-list 0"; do
    read -ra options <<< "$chosen"
    one mpirun "${options[@]}" -np 1 "$CONVOY" "${check[@]}"
    found warn ranks "rank 0 may use one core"
  done
  one mpirun -np 1 "$CONVOY" "${check[@]}"
  found ok ranks "1 on 1 host"
  grep -q "$(nproc) of $(nproc) cores" "$WORK/out.txt" || fail "mpirun's default binding was not lifted" "$WORK/out.txt"
  pass "mpirun's default binding to a core is lifted, a chosen one is kept"
else
  leave_out "ranks that may use one core of several"
fi
CUDA_VISIBLE_DEVICES='' ranks 2 check --backend cuda
found fail device "no GPU is visible\|cuda" # built with the CUDA backend, or without it
grep -q '^ok    network' "$WORK/out.txt" || fail "the other checks are missing" "$WORK/out.txt"
NCCL_SOCKET_IFNAME=nothing ranks 2 "${check[@]}"
found fail network "NCCL_SOCKET_IFNAME=nothing fits no interface"

# ---- data ----
ranks 2 "${check[@]}" --data "$WORK/nowhere"
found fail data "$WORK/nowhere"
cp -r "$data" "$WORK/flipped"
shard=$(find "$WORK/flipped" -name 'train-00000*')
printf '\377\0\377\0\377' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") / 2)) conv=notrunc 2> /dev/null
ranks 2 "${check[@]}" --data "$WORK/flipped"
found fail data "$shard"

# ---- the run's folder and /dev/shm, where mounts are permitted ----
ranks 2 "${check[@]}" --out "$data/$(basename "$shard")"
found fail out "is not a folder"
if works "full file systems" unshare --mount mount -t tmpfs none /mnt; then
  mkdir "$WORK/small"
  mounted() { # mounted SIZE FOLDER OPTION...
    # shellcheck disable=SC2016 # expanded by the inner shell
    one unshare --mount bash -c 'mount -t tmpfs -o size=$1 none "$2" && shift 2 && exec "$@"' mounted "$1" "$2" \
      "$CONVOY" "${check[@]}" "${@:3}"
  }
  mounted 1m "$WORK/small" --out "$WORK/small/run"
  found fail out "has 1 MiB free"
  mounted 500m "$WORK/small" --out "$WORK/small/run"
  found warn out "has 500 MiB free"
  mounted 2g,ro "$WORK/small" --out "$WORK/small/run"
  found fail out "cannot be written: Read-only file system"
  mounted 8m /dev/shm
  found fail shm "has [78] MiB free"
  mounted 64m /dev/shm
  found warn shm "has 6[0-9] MiB free"
fi

# ---- a rank with another library, and sums that are wrong ----
if program mpicc; then
  cat > "$WORK/other.c" << 'END'
int H5get_libversion(unsigned *major, unsigned *minor, unsigned *release) {
  return *major = 1, *minor = 99, *release = 0, 0;
}
END
  cat > "$WORK/wrong.c" << 'END'
#include <mpi.h>
int MPI_Allreduce(const void *mine, void *sum, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int code = PMPI_Allreduce(mine, sum, count, type, op, comm);
  if (type == MPI_FLOAT && count > 1000) ((float *)sum)[777] += 1;
  return code;
}
END
  cat > "$WORK/slow.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
int dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *arguments) {
  int (*execute)(const void *, void *, int, const void *);
  void *found = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
  memcpy(&execute, &found, sizeof execute);
  usleep(80000);
  return execute(primitive, stream, count, arguments);
}
END
  cat > "$WORK/nothing.c" << 'END'
#include <errno.h>
#include <sys/socket.h>
int bind(int fd, const struct sockaddr *address, socklen_t length) {
  (void)fd, (void)address, (void)length;
  return errno = EACCES, -1;
}
int flock(int fd, int operation) {
  (void)fd, (void)operation;
  return errno = ENOLCK, -1;
}
END
  for name in other wrong slow nothing; do
    mpicc -shared -fPIC -o "$WORK/$name.so" "$WORK/$name.c" || fail "the library to preload"
  done
  one mpirun --oversubscribe --bind-to none -np 1 "$CONVOY" "${check[@]}" : \
    -np 1 -x LD_PRELOAD="$WORK/other.so" "$CONVOY" "${check[@]}"
  found fail libraries "rank 1, .*not what rank 0 has loaded: .*HDF5 1.99.0"
  LD_PRELOAD=$WORK/other.so one "$CONVOY" "${check[@]}"
  found warn libraries "compiled with others: .*HDF5 1.99.0"
  one mpirun --oversubscribe --bind-to none -np 2 -x LD_PRELOAD="$WORK/wrong.so" "$CONVOY" "${check[@]}"
  found fail all-reduce "element 777 of the sum over 2 ranks is 1556"
  one mpirun --oversubscribe --bind-to none -np 1 "$CONVOY" "${check[@]}" : \
    -np 1 -x LD_PRELOAD="$WORK/slow.so" "$CONVOY" "${check[@]}"
  found warn products "rank 1, .*512³: fp32"
  LD_PRELOAD=$WORK/nothing.so one "$CONVOY" "${check[@]}" --out "$WORK/none/run"
  found fail network "no TCP port can be opened: Permission denied"
  grep -q "^warn  out .*has no locks" "$WORK/out.txt" || fail "no locks: no warning" "$WORK/out.txt"
  pass "warn: out: no locks"
fi
