#!/usr/bin/env bash
# The job scripts through sbatch on a real Slurm of two nodes (tests/slurm): training by srun and by mpirun, a time limit
# that requeues, scancel, arrays, a node lost in mid-run, wrong launches. Run from the top of the tree by ctest.
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/program/lib.sh
. tests/program/lib.sh
# shellcheck source=tests/slurm/cluster.sh
. tests/slurm/cluster.sh
[ -z "${CONVOY_SANITIZED:-}" ] || { echo "skipped: the job scripts do not depend on the instrumented build"; exit 77; }
# Of five whole runs on a busy host one hung and one died inside MPI's start; neither came again in 190 repeats of that step.
[ "${CONVOY_TEST_SLURM:-0}" = 1 ] || { echo "skipped: set CONVOY_TEST_SLURM=1 (2 minutes; starts Slurm daemons on this host)"; exit 77; }
reason=$(cluster_reason)
[ -z "$reason" ] || { echo "skipped: no Slurm can be started here: $reason"; exit 77; }
# With SLURM_* or OMPI_* variables of an outer job the inner ones would be misled.
for variable in $(compgen -e | grep -E '^(SLURM|PMI|OMPI_COMM|OMPI_UNIVERSE)'); do unset "$variable"; done
CONVOY=$(readlink -f "$CONVOY")
export CONVOY OMP_NUM_THREADS=1
trap 'cluster_down; rm -rf "$WORK"' EXIT
chmod 755 "$WORK"
cluster_up "$WORK/slurm" 2 2 || fail "the cluster did not start"
gpus=() # the tests compute on the CPU; the GPUs are there to be asked for
[ "$CLUSTER_GPUS" = 0 ] || gpus=(--gpus-per-node="$CLUSTER_GPUS")
data=$WORK/data
set_of "$data" 256 2000 # batch 64: 4 steps an epoch
cat > "$WORK/base.conf" << END
backend = cpu
threads = 1
data = $data
batch = 64
log-every = 1
deterministic = on
augment = flip,crop
END

place=() # words before the options
# submit NAME SCRIPT SBATCH_OPTION... -- OPTION...: its id in $job, its output in $WORK/NAME.txt.
submit() {
  local name=$1 script=$2 words=()
  shift 2
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  job=$(sbatch --parsable --output="$WORK/$name.txt" --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 "${gpus[@]}" \
    --time=10 "${words[@]}" "jobs/$script" "${place[@]}" --config "$WORK/${conf:-base}.conf" "$@") || fail "$name: sbatch"
}

# field JOB NAME: of scontrol's description, e.g. JobState.
field() { scontrol -o show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
ended() { case $(field "$1" JobState) in PENDING | RUNNING | COMPLETING | REQUEUED | "") return 1 ;; esac }
# ends NAME STATE EXITCODE: waits for $job. EXITCODE is a pattern.
ends() {
  cluster_wait 120 ended "$job" || fail "$1: does not end: $(field "$job" JobState)" "$WORK/$1.txt"
  [[ "$(field "$job" JobState) $(field "$job" ExitCode)" = $2\ $3 ]] ||
    fail "$1: $(field "$job" JobState) $(field "$job" ExitCode), expected $2 $3" "$WORK/$1.txt"
}
has_rows() { [ -f "$1/loss.csv" ] && [ "$(wc -l < "$1/loss.csv")" -gt "$2" ]; }
same_log() { diff <(no_times "$1/loss.csv") <(no_times "$2/loss.csv") > "$WORK/diff.txt" || fail "$3: loss.csv differs" "$WORK/diff.txt"; }

# ---- train.sbatch: two nodes of two ranks ----
for launcher in srun mpirun; do
  CONVOY_LAUNCHER=$launcher submit "train-$launcher" train.sbatch -- --out "$WORK/$launcher" --epochs 2 --eval-every 0
  ends "train-$launcher" COMPLETED 0:0
  grep -q '4 ranks on 2 hosts; Open MPI' "$WORK/train-$launcher.txt" || fail "not 4 ranks on 2 hosts" "$WORK/train-$launcher.txt"
  grep -q 'rank 2: n2, cpu' "$WORK/train-$launcher.txt" || fail "no map of the ranks" "$WORK/train-$launcher.txt"
  ! grep -q 'warning: host' "$WORK/train-$launcher.txt" || fail "a warning" "$WORK/train-$launcher.txt"
  pass "train.sbatch, $launcher: 4 ranks on 2 nodes"
done
same_log "$WORK/srun" "$WORK/mpirun" "srun and mpirun"

# ---- a time limit, in the background of what follows on the nodes' other CPUs: saved, requeued, finished ----
# A test of 2000 images after each epoch makes this run slow; the requeued one does without and gets an end.
sed '$a eval-every = 1\nepochs = 100000' "$WORK/base.conf" > "$WORK/slice.conf"
conf=slice submit slice preemptible.sbatch --ntasks-per-node=1 --time=1 --signal=B:USR1@30 -- --out "$WORK/slice"
slice=$job
requeued() { [ "$(field "$1" Restarts)" -gt 0 ]; }
give_end() {
  cluster_wait 100 requeued "$slice" || return 1
  echo $(($(tail -n 1 "$WORK/slice/loss.csv" | cut -d, -f1) + 8)) > "$WORK/steps"
  sed "\$a eval-every = 0\nepochs = 100000\nsteps = $(cat "$WORK/steps")" "$WORK/base.conf" > "$WORK/whole.conf"
  cp "$WORK/whole.conf" "$WORK/slice.conf.new" && mv "$WORK/slice.conf.new" "$WORK/slice.conf"
}
give_end &
watcher=$!

# ---- wrong launches: named before anything is written ----
# refused WHAT PATTERN COMMAND...
refused() {
  local what=$1 pattern=$2
  shift 2
  code=0
  timeout 60 "$@" "$CONVOY" train --config "$WORK/base.conf" --out "$WORK/refused" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  expect 2 "$what"
  one_error "$what"
  grep '^error: ' "$WORK/err.txt" | grep -q -- "$pattern" || fail "$what: no '$pattern'" "$WORK/err.txt"
  [ ! -e "$WORK/refused" ] || fail "$what: something was written"
  pass "$what: refused"
}
refused "plain srun" "srun --mpi=pmix" srun --nodes=2 --ntasks=2
refused "srun --mpi=none" "srun --mpi=pmix" srun --mpi=none --nodes=2 --ntasks=2
refused "srun --mpi=pmi2" "srun --mpi=pmix" srun --mpi=pmi2 --nodes=2 --ntasks=2
refused "plain srun of one task" "srun --mpi=pmix" srun --ntasks=1

# ---- other numbers of ranks ----
code=0
srun --mpi=pmix --nodes=2 --ntasks=2 "$CONVOY" train --config "$WORK/base.conf" --out "$WORK/refused" --expect-ranks 4 \
  > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "--expect-ranks 4"
[ ! -e "$WORK/refused" ] || fail "--expect-ranks 4: something was written"
srun --mpi=pmix --nodes=2 --ntasks=3 --overcommit "$CONVOY" train --config "$WORK/base.conf" --out "$WORK/refused" --check \
  > "$WORK/out.txt" 2> "$WORK/err.txt" || fail "three ranks" "$WORK/err.txt"
grep -q '^warning: host n. has . ranks*, n. has .: expected as many' "$WORK/err.txt" || fail "uneven ranks: no warning" "$WORK/err.txt"
pass "another number of ranks is refused, an uneven one warned of"

# ---- convoy check over both nodes ----
srun --mpi=pmix --nodes=2 --ntasks=2 --ntasks-per-node=1 "$CONVOY" check --backend cpu --data "$data" --out "$WORK/refused" \
  --expect-ranks 2 > "$WORK/out.txt" 2> "$WORK/err.txt" || fail "check" "$WORK/out.txt" "$WORK/err.txt"
grep -q '^ok    ranks       2 on 2 hosts' "$WORK/out.txt" || fail "check: not on two hosts" "$WORK/out.txt"
grep -q '^rank 1: n2, cpu' "$WORK/out.txt" || fail "check: no map of the ranks" "$WORK/out.txt"
grep -q '^ok    all-reduce' "$WORK/out.txt" || fail "check: no all-reduce" "$WORK/out.txt"
pass "convoy check over two nodes"

# ---- no launcher in a batch script: one rank, with a warning ----
job=$(sbatch --parsable --output="$WORK/alone.txt" --nodes=2 --ntasks=2 --wrap \
  "$CONVOY train --config $WORK/base.conf --out $WORK/alone --steps 2 --eval-every 0 --epochs 1")
ends alone COMPLETED 0:0
grep -q 'warning: .*2 tasks.*no launcher' "$WORK/alone.txt" || fail "no launcher: no warning" "$WORK/alone.txt"
pass "no launcher: warned"

# ---- scaling.sbatch: an array over numbers of ranks ----
place=("$WORK/scaling")
submit scaling scaling.sbatch --ntasks-per-node=1 --array=1,2 -- --epochs 2
place=()
for index in 1 2; do
  job=${job%%_*}_$index
  ends scaling COMPLETED 0:0
done
awk -F, 'FNR == 1 { if ($0 != "ranks,nodes,images_per_s,least,most") exit 1; next }
  !($1 == FNR - 1 && $2 == $1 && $4 > 0 && $3 >= $4 && $5 >= $3) { bad = 1 }
  END { exit bad || FNR != 3 }' "$WORK/scaling/scaling.csv" || fail "scaling.csv" "$WORK/scaling/scaling.csv" "$WORK/scaling.txt"
pass "scaling.sbatch: $(tail -n +2 "$WORK/scaling/scaling.csv" | tr '\n' ' ')"

# ---- container.sbatch: with a program in apptainer's place that checks its words and runs what is inside ----
mkdir "$WORK/bin"
cat > "$WORK/bin/apptainer" << 'END'
#!/usr/bin/env bash
gpu=""
[ "$2" != --nv ] || { gpu=--nv; set -- "$1" "${@:3}"; }
[ "$1 $2 $4 $6" = "exec --bind --pwd $CONVOY_IMAGE" ] && [ "$3 $5" = "$PWD $PWD" ] && [ "$7" = convoy ] || exit 9
echo "inside $gpu"
shift 7
exec "$CONVOY" "$@"
END
chmod +x "$WORK/bin/apptainer"
touch "$WORK/convoy.sif"
PATH=$WORK/bin:$PATH CONVOY_IMAGE=$WORK/convoy.sif submit container container.sbatch --ntasks-per-node=1 -- --out "$WORK/container" \
  --epochs 1 --eval-every 0
ends container COMPLETED 0:0
[ "$(grep -c '^inside' "$WORK/container.txt")" = 2 ] || fail "not each task in a container" "$WORK/container.txt"
[ "$CLUSTER_GPUS" = 0 ] || grep -q '^inside --nv' "$WORK/container.txt" || fail "no --nv for GPUs" "$WORK/container.txt"
CONVOY_IMAGE=$WORK/none.sif submit image container.sbatch --ntasks-per-node=1 -- --out "$WORK/image"
ends image FAILED 2:0
grep -q "^error: no image '$WORK/none.sif'" "$WORK/image.txt" || fail "no image: not named" "$WORK/image.txt"
pass "container.sbatch: each task in a container; a missing image is named"

# ---- scancel stays; by mpirun also after a stop on request that requeues ----
endless=(--epochs 100000 --eval-every 0)
submit cancel preemptible.sbatch --ntasks-per-node=1 -- --out "$WORK/cancel" "${endless[@]}"
cancel=$job
cluster_wait 60 has_rows "$WORK/cancel" 3 || fail "no rows" "$WORK/cancel.txt"
scancel "$cancel"
ends cancel CANCELLED '*'
grep -q 'stopped by a signal' "$WORK/cancel.txt" || fail "scancel: no last checkpoint" "$WORK/cancel.txt"

CONVOY_LAUNCHER=mpirun submit stop preemptible.sbatch --ntasks-per-node=1 -- --out "$WORK/stop" "${endless[@]}"
stop=$job
cluster_wait 60 has_rows "$WORK/stop" 3 || fail "no rows" "$WORK/stop.txt"
scancel --batch --signal=USR1 "$stop"
cluster_wait 60 requeued "$stop" || fail "by mpirun: not requeued" "$WORK/stop.txt"
cluster_wait 60 grep -q '^resuming: .*checkpoints/step-' "$WORK/stop.txt" || fail "by mpirun: not resumed" "$WORK/stop.txt"
scancel "$stop"
ends stop CANCELLED '*'
pass "preemptible.sbatch by mpirun: stopped on request, requeued, resumed"

# ---- ... of the time limit ----
wait $watcher || fail "not requeued" "$WORK/slice.txt"
steps=$(cat "$WORK/steps")
conf=whole submit whole train.sbatch --ntasks-per-node=1 -- --out "$WORK/whole"
ends whole COMPLETED 0:0
job=$slice
ends slice COMPLETED 0:0
[ "$(wc -l < "$WORK/slice/loss.csv")" = $((steps + 1)) ] || fail "not $steps rows" "$WORK/slice/loss.csv" "$WORK/slice.txt"
same_log "$WORK/whole" "$WORK/slice" "requeued"
grep -q 'goes back into the queue' "$WORK/slice.txt" || fail "the script did not requeue" "$WORK/slice.txt"
pass "preemptible.sbatch: stopped for the time limit, requeued, $steps steps as without"
[ "$(field "$cancel" JobState) $(field "$cancel" Restarts)" = "CANCELLED 0" ] || fail "scancel was undone" "$WORK/cancel.txt"
[ "$(field "$stop" JobState) $(field "$stop" Restarts)" = "CANCELLED 1" ] || fail "scancel was undone" "$WORK/stop.txt"
pass "preemptible.sbatch: scancel stays"

# ---- a node lost in mid-run ----
lanes=(--lanes 4 --epochs 30 --checkpoint-every 2 --eval-every 0)
"$CONVOY" train --config "$WORK/base.conf" --out "$WORK/lanes" "${lanes[@]}" > "$WORK/lanes.txt" 2>&1 || fail "lanes" "$WORK/lanes.txt"
# lost NAME COMMAND...: which takes n2 away.
lost() {
  local name=$1 begin=$SECONDS
  shift
  submit "$name" elastic.sbatch -- --out "$WORK/$name" --comm-timeout 20 "${lanes[@]}"
  cluster_wait 60 has_rows "$WORK/$name" 6 || fail "no rows" "$WORK/$name.txt"
  [ "$(field "$job" BatchHost)" = n1 ] || fail "the script is not on n1"
  "$@"
  ends "$name" COMPLETED 0:0
  grep -q '2 ranks on 1 of 2 nodes: n1' "$WORK/$name.txt" || fail "$name: not on one node" "$WORK/$name.txt"
  same_log "$WORK/lanes" "$WORK/$name" "$name"
  pass "elastic.sbatch: $name, done on the other node after $((SECONDS - begin)) s, the same losses"
}
lost "node-crashed" cluster_crash n2
cluster_start n2
cluster_wait 30 cluster_all_idle || fail "n2 does not come back"
set_down() { # its ranks still run, but nothing can end them from outside
  kill -KILL "$(cat "$CLUSTER/slurmd-n2.pid")"
  scontrol update nodename=n2 state=down reason=test
}
lost "slurmd-killed" set_down
[ -z "$(cluster_processes n2)" ] || fail "ranks are left on n2"
