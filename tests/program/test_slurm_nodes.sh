#!/usr/bin/env bash
# jobs/elastic.sbatch on a real Slurm of two nodes (tests/slurm) that loses one in mid-run.
# shellcheck source=tests/slurm/jobs.sh
. "$(dirname "$0")/../slurm/jobs.sh"

# ---- a node lost in mid-run ----
lanes=(--lanes 4 --epochs 30 --checkpoint-every 2 --eval-every 0)
"$CONVOY" train --config "$WORK/base.conf" --out "$WORK/lanes" "${lanes[@]}" > "$WORK/lanes.txt" 2>&1 || fail "lanes" "$WORK/lanes.txt"
# lost NAME COMMAND...: which takes n2 away.
lost() {
  local name=$1 begin=$SECONDS
  shift
  submit "$name" elastic.sbatch -- --out "$WORK/$name" --comm-timeout 10 "${lanes[@]}"
  cluster_wait 60 has_rows "$WORK/$name" 6 || fail "no rows" "$WORK/$name.txt"
  [ "$(field "$job" BatchHost)" = n1 ] || fail "the script is not on n1"
  "$@"
  ends "$name" COMPLETED 0:0
  grep -q '2 ranks on 1 of 2 nodes: n1' "$WORK/$name.txt" || fail "$name: not on one node" "$WORK/$name.txt"
  same_log "$WORK/lanes" "$WORK/$name" "$name"
  pass "elastic.sbatch: $name, done on the other node after $((SECONDS - begin)) s, the same losses"
}
lost "node-crashed" cluster_crash n2
back() {
  cluster_start n2
  cluster_wait 60 cluster_all_idle || fail "n2 does not come back"
}
back
crash_noticed() { # at once, as by a health check
  cluster_crash n2
  scontrol update nodename=n2 state=down reason=test
}
CONVOY_LAUNCHER=mpirun lost "node-crashed-by-mpirun" crash_noticed
back
set_down() { # its ranks still run, but nothing can end them from outside
  kill -KILL "$(cat "$CLUSTER/slurmd-n2.pid")"
  scontrol update nodename=n2 state=down reason=test
}
lost "slurmd-killed" set_down
no_ranks() {
  local process
  for process in $(cluster_processes n2); do
    ! tr '\0' ' ' 2> /dev/null < "/proc/$process/cmdline" | grep -q "^$CONVOY train" || return 1
  done
}
cluster_wait 60 no_ranks || fail "ranks are left on n2"
pass "the ranks on the node that nobody reaches have ended themselves"
