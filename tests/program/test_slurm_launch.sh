#!/usr/bin/env bash
# Launches under a real Slurm of two nodes (tests/slurm): the wrong ones are named before anything is written, the odd ones
# warned of; convoy check over both nodes; MPI's start and end wait for all ranks.
# shellcheck source=tests/slurm/jobs.sh
. "$(dirname "$0")/../slurm/jobs.sh"
export SLURM_PMIX_FENCE=ring # as jobs/launch.sh does

# run WORD...: output and exit code as lib.sh's ranks leaves them.
run() {
  code=0
  timeout 120 "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
}
two=(srun --mpi=pmix --kill-on-bad-exit=1 --nodes=2 --ntasks=2)
train=("$CONVOY" train --config "$WORK/base.conf" --out "$WORK/refused")
nothing_written() { [ ! -e "$WORK/refused" ] || fail "$1: something was written"; }

# ---- refused ----
# refused WHAT PATTERN WORD...
refused() {
  local what=$1 pattern=$2
  shift 2
  run "$@"
  expect 2 "$what"
  one_error "$what"
  grep '^error: ' "$WORK/err.txt" | grep -q -- "$pattern" || fail "$what: no '$pattern'" "$WORK/err.txt"
  nothing_written "$what"
  pass "$what: refused"
}
refused "plain srun" "srun --mpi=pmix" srun --nodes=2 --ntasks=2 "${train[@]}"
refused "srun --mpi=none" "srun --mpi=pmix" srun --mpi=none --nodes=2 --ntasks=2 "${train[@]}"
refused "srun --mpi=pmi2" "srun --mpi=pmix" srun --mpi=pmi2 --nodes=2 --ntasks=2 "${train[@]}"
refused "plain srun of one task" "srun --mpi=pmix" srun --ntasks=1 "${train[@]}"
refused "--expect-ranks 4 of 2" "2 ranks.*expected 4\|expect-ranks.*4" "${two[@]}" "${train[@]}" --expect-ranks 4
refused "an option that is none" "unknown option" "${two[@]}" "${train[@]}" --no-such-option

# ---- warned of ----
run srun --mpi=pmix --kill-on-bad-exit=1 --nodes=2 --ntasks=3 --overcommit "${train[@]}" --check
expect 0 "three ranks"
grep -q '^warning: host n. has . ranks*, n. has .: expected as many' "$WORK/err.txt" || fail "uneven ranks: no warning" "$WORK/err.txt"
nothing_written "three ranks"
pass "uneven ranks: warned of"
if [ "$(nproc --all)" -gt 1 ]; then
  run "${two[@]}" taskset -c 0 "${train[@]}" --check
  expect 0 "one core a rank"
  grep -q '^warning: rank 0 may use one core of host n1' "$WORK/err.txt" || fail "one core: no warning" "$WORK/err.txt"
  pass "one core for a rank and its reader: warned of"
fi
job=$(sbatch --parsable --output="$WORK/alone.txt" --nodes=2 --ntasks=2 --wrap \
  "$CONVOY train --config $WORK/base.conf --out $WORK/alone --steps 2 --eval-every 0 --epochs 1")
ends alone COMPLETED 0:0
grep -q 'warning: .*2 tasks.*no launcher' "$WORK/alone.txt" || fail "no launcher: no warning" "$WORK/alone.txt"
pass "no launcher in a batch script: warned of"

# ---- convoy check over both nodes ----
check=("${two[@]}" --ntasks-per-node=1 "$CONVOY" check --backend cpu --data "$data" --out "$WORK/refused")
run "${check[@]}" --expect-ranks 2
expect 0 "check"
for row in 'ok    ranks       2 on 2 hosts' 'rank 1: n2, cpu' 'ok    libraries' 'ok    all-reduce' 'ok    data' 'ok    out'; do
  grep -q "^$row" "$WORK/out.txt" || fail "check: no '$row'" "$WORK/out.txt"
done
SLURM_PMIX_FENCE=mixed run "${check[@]}"
expect 0 "check without the ring"
grep -q '^warn  ranks .*SLURM_PMIX_FENCE is mixed' "$WORK/out.txt" || fail "check: no warning of the fence" "$WORK/out.txt"
run "${check[@]}" --expect-ranks 3 --json
expect 2 "check --json of a failure"
one_error "check --json of a failure"
python3 - "$WORK/out.txt" << 'END' || fail "check: the JSON" "$WORK/out.txt"
import json, sys
text = json.load(open(sys.argv[1]))
assert text["ready"] is False and [r["host"] for r in text["ranks"]] == ["n1", "n2"], text
assert [row["check"] for row in text["checks"] if row["state"] == "fail"] == ["ranks"], text
END
pass "convoy check over two nodes, table and JSON"

cat > "$WORK/loopback.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
int getifaddrs(struct ifaddrs **list) {
  int (*get)(struct ifaddrs **);
  void *found = dlsym(RTLD_NEXT, "getifaddrs");
  memcpy(&get, &found, sizeof get);
  int code = get(list);
  for (struct ifaddrs *i = code == 0 ? *list : NULL; i; i = i->ifa_next)
    if (!(i->ifa_flags & IFF_LOOPBACK)) i->ifa_flags &= ~(unsigned)IFF_UP;
  return code;
}
END
mpicc -shared -fPIC -o "$WORK/loopback.so" "$WORK/loopback.c" || fail "the library to preload"
run "${two[@]}" --ntasks-per-node=1 --export=ALL,LD_PRELOAD="$WORK/loopback.so" "$CONVOY" check --backend cpu
expect 0 "check with the loopback alone"
grep -q '^warn  network .*only the loopback is up .* there are 2 hosts' "$WORK/out.txt" ||
  fail "check: the loopback alone: no warning" "$WORK/out.txt"
pass "convoy check: hosts with only a loopback are warned of"

# ---- MPI's start and end wait for the ranks of all nodes ----
mpicc -shared -fPIC -o "$WORK/late.so" tests/slurm/late.c || fail "the library to preload"
# late start|end FENCE OPTION...: two ranks of which one is late there refuse to train; times in $WORK/times.
late() {
  rm -rf "$WORK/times"
  mkdir "$WORK/times"
  LATE=$WORK/times LATE_AT=$1 SLURM_PMIX_FENCE=$2 run "${two[@]}" --ntasks-per-node=1 --export=ALL,LD_PRELOAD="$WORK/late.so" \
    "${train[@]}" --expect-ranks 4
  expect 2 "a rank late at the $1, $2"
}
# waited A B: A came no earlier than B.
waited() { awk '{ t[NR] = $1 } END { exit !(NR == 2 && t[1] >= t[2]) }' "$WORK/times/$1" "$WORK/times/$2"; }
late start ring
waited started-1 came-0 || fail "with SLURM_PMIX_FENCE=ring a rank leaves MPI_Init before another is ready" "$WORK"/times/*
pass "MPI_Init under srun waits for the other node (ring)"
late end mixed # which may not wait
waited left-0 came-1 || fail "a rank has left MPI while another was not done" "$WORK"/times/*
pass "no rank leaves before all are done"
