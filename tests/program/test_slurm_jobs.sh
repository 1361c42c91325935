#!/usr/bin/env bash
# The job scripts through sbatch on a real Slurm of two nodes (tests/slurm): training by srun and by mpirun, a time limit
# that requeues, scancel, an array, a container.
# shellcheck source=tests/slurm/jobs.sh
. "$(dirname "$0")/../slurm/jobs.sh"

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

# ---- as another user than root ----
plain=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
if "${plain[@]}" test -x "$CONVOY" -a -r jobs/train.sbatch 2> /dev/null; then
  mkdir "$WORK/plain"
  chown nobody "$WORK/plain"
  sbatch() { HOME=$WORK/plain TMPDIR=$WORK/plain "${plain[@]}" sbatch "$@"; }
  CONVOY_LAUNCHER=mpirun submit plain/job train.sbatch "${one[@]}" -- --out "$WORK/plain/run" --epochs 2 --eval-every 0
  unset -f sbatch
  ends plain/job COMPLETED 0:0
  [ "$(stat -c %U "$WORK/plain/run/loss.csv")" = nobody ] || fail "not as nobody"
  pass "train.sbatch by a user without rights"
else
  leave_out "another user than root (who may not read this tree)"
fi

# ---- a time limit, in the background of what follows on the nodes' other CPUs: saved, requeued, finished ----
# A test of 2000 images after each epoch makes this run slow; the requeued one does without and gets an end.
sed '$a eval-every = 1\nepochs = 100000' "$WORK/base.conf" > "$WORK/slice.conf"
conf=slice submit slice preemptible.sbatch "${one[@]}" --time=1 --signal=B:USR1@30 -- --out "$WORK/slice"
slice=$job
give_end() {
  cluster_wait 150 requeued "$slice" || return 1
  echo $(($(tail -n 1 "$WORK/slice/loss.csv" | cut -d, -f1) + 8)) > "$WORK/steps"
  sed "\$a eval-every = 0\nepochs = 100000\nsteps = $(cat "$WORK/steps")" "$WORK/base.conf" > "$WORK/whole.conf"
  cp "$WORK/whole.conf" "$WORK/slice.conf.new" && mv "$WORK/slice.conf.new" "$WORK/slice.conf"
}
give_end &
watcher=$!

# ---- scaling.sbatch: an array over numbers of ranks ----
place=("$WORK/scaling")
submit scaling scaling.sbatch "${one[@]}" --array=1,2 -- --epochs 2
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
PATH=$WORK/bin:$PATH CONVOY_IMAGE=$WORK/convoy.sif submit container container.sbatch "${one[@]}" -- --out "$WORK/container" \
  --epochs 1 --eval-every 0
ends container COMPLETED 0:0
[ "$(grep -c '^inside' "$WORK/container.txt")" = 2 ] || fail "not each task in a container" "$WORK/container.txt"
[ "$CLUSTER_GPUS" = 0 ] || grep -q '^inside --nv' "$WORK/container.txt" || fail "no --nv for GPUs" "$WORK/container.txt"
CONVOY_IMAGE=$WORK/none.sif submit image container.sbatch "${one[@]}" -- --out "$WORK/image"
ends image FAILED 2:0
grep -q "^error: no image '$WORK/none.sif'" "$WORK/image.txt" || fail "no image: not named" "$WORK/image.txt"
# ... by Pyxis, whose options srun has only with it.
cat > "$WORK/bin/srun" << 'END'
#!/usr/bin/env bash
words=() seen=""
for word in "$@"; do
  case $word in
    --container-image=name | --container-mounts="$PWD:$PWD" | --container-workdir="$PWD") seen+=x ;;
    convoy) words+=("$CONVOY") ;;
    *) words+=("$word") ;;
  esac
done
[ "$seen" = xxx ] || exit 9
PATH=${PATH#*:} exec srun "${words[@]}"
END
chmod +x "$WORK/bin/srun"
PATH=$WORK/bin:$PATH CONVOY_CONTAINER=pyxis CONVOY_IMAGE=name submit pyxis container.sbatch "${one[@]}" -- --out "$WORK/pyxis" \
  --epochs 1 --eval-every 0
ends pyxis COMPLETED 0:0
same_log "$WORK/container" "$WORK/pyxis" "Pyxis"
pass "container.sbatch: each task in a container, by Apptainer or Pyxis; a missing image is named"

# ---- an mpirun that ends with 0 though the ranks are gone, as when it loses a node ----
cat > "$WORK/bin/mpirun" << 'END'
#!/usr/bin/env bash
PATH=${PATH#*:} mpirun "$@" &
until [ "$(wc -l 2> /dev/null < "$LOST/loss.csv")" -gt 3 ] 2> /dev/null; do sleep 0.1; done
kill -KILL $!
exit 0
END
chmod +x "$WORK/bin/mpirun"
PATH=$WORK/bin:$PATH LOST=$WORK/lost CONVOY_LAUNCHER=mpirun submit lost train.sbatch "${one[@]}" -- --out "$WORK/lost" --epochs 100000 \
  --eval-every 0
ends lost FAILED 5:0
grep -q "run.json says that the run has not ended" "$WORK/lost.txt" || fail "mpirun's 0: not said" "$WORK/lost.txt"
pass "mpirun's 0 is not believed when the run has not ended"

# ---- scancel stays; by mpirun also after a stop on request that requeues ----
endless=(--epochs 100000 --eval-every 0)
submit cancel preemptible.sbatch "${one[@]}" -- --out "$WORK/cancel" "${endless[@]}"
cancel=$job
cluster_wait 60 has_rows "$WORK/cancel" 3 || fail "no rows" "$WORK/cancel.txt"
scancel "$cancel"
ends cancel CANCELLED '*'
grep -q 'stopped by a signal' "$WORK/cancel.txt" || fail "scancel: no last checkpoint" "$WORK/cancel.txt"

CONVOY_LAUNCHER=mpirun submit stop preemptible.sbatch "${one[@]}" -- --out "$WORK/stop" "${endless[@]}"
stop=$job
cluster_wait 60 has_rows "$WORK/stop" 3 || fail "no rows" "$WORK/stop.txt"
scancel --batch --signal=USR1 "$stop"
cluster_wait 60 requeued "$stop" || fail "by mpirun: not requeued" "$WORK/stop.txt"
cluster_wait 60 grep -q '^resuming: .*checkpoints/step-' "$WORK/stop.txt" || fail "by mpirun: not resumed" "$WORK/stop.txt"
scontrol requeue "$stop" # as a preemption does: TERM to all, then the queue
resumed_twice() { [ "$(grep -c '^resuming: .*checkpoints/step-' "$WORK/stop.txt")" -ge 2 ]; }
cluster_wait 90 resumed_twice || fail "by mpirun: not resumed after a preemption" "$WORK/stop.txt"
scancel "$stop"
ends stop CANCELLED '*'
pass "preemptible.sbatch by mpirun: stopped on request or preempted, requeued, resumed"

# ---- ... of the time limit ----
wait $watcher || fail "not requeued" "$WORK/slice.txt"
steps=$(cat "$WORK/steps")
conf=whole submit whole train.sbatch "${one[@]}" -- --out "$WORK/whole"
ends whole COMPLETED 0:0
job=$slice
ends slice COMPLETED 0:0
[ "$(wc -l < "$WORK/slice/loss.csv")" = $((steps + 1)) ] || fail "not $steps rows" "$WORK/slice/loss.csv" "$WORK/slice.txt"
same_log "$WORK/whole" "$WORK/slice" "requeued"
grep -q 'goes back into the queue' "$WORK/slice.txt" || fail "the script did not requeue" "$WORK/slice.txt"
pass "preemptible.sbatch: stopped for the time limit, requeued, $steps steps as without"
[ "$(field "$cancel" JobState) $(field "$cancel" Restarts)" = "CANCELLED 0" ] || fail "scancel was undone" "$WORK/cancel.txt"
[ "$(field "$stop" JobState) $(field "$stop" Restarts)" = "CANCELLED 2" ] || fail "scancel was undone" "$WORK/stop.txt"
pass "preemptible.sbatch: scancel stays"

