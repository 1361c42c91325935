#!/usr/bin/env bash
# Requests to stop at any moment: one common step, one checkpoint, exit 75, and the resumed run is the undisturbed one.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/program/faults.sh
. "$(dirname "$0")/faults.sh"

data=$WORK/data
set_of "$data" 300 200 # batch 30: 10 steps an epoch
options=(--data "$data" --backend cpu --threads 1 --deterministic --batch 30 --epochs 10 --log-every 1 --eval-batch 10)
ranks 2 train --out "$WORK/whole" "${options[@]}"
expect 0 "the undisturbed run"

# stopped_and_resumed OUT WHAT: the run that has just ended was stopped; goes on to its end.
stopped_and_resumed() {
  local step=0
  expect 75 "$2"
  grep -q '^error' "$WORK/err.txt" && fail "$2: a stop is no error" "$WORK/err.txt"
  if grep -q "stopped by a signal at step" "$WORK/out.txt"; then
    step=$(sed -n 's/.*stopped by a signal at step \([0-9]*\).*/\1/p' "$WORK/out.txt")
    [ "$step" = 0 ] || [ -f "$1/checkpoints/step-$(printf %08d "$step").h5" ] || fail "$2: no checkpoint of step $step"
  fi
  [ -z "$(find "$1" -name '*.tmp' 2> /dev/null)" ] || fail "$2: a temporary is left"
  none_left "$1" "$2"
  ranks 2 train --out "$1" "${options[@]}" --resume "${@:3}"
  [ "$code" = 0 ] || fail "$2: the resumed run: exit code $code" "$WORK/err.txt"
  diff <(no_times "$WORK/whole/loss.csv") <(no_times "$1/loss.csv") > "$WORK/diff.txt" || fail "$2: loss.csv differs" "$WORK/diff.txt"
  diff <(cut -d, -f1-6 "$WORK/whole/epochs.csv") <(cut -d, -f1-6 "$1/epochs.csv") > "$WORK/diff.txt" || fail "$2: epochs.csv differs" "$WORK/diff.txt"
  same_arrays "$WORK/whole/checkpoints/step-00000100.h5" "$1/checkpoints/step-00000100.h5" > "$WORK/diff.txt" 2>&1 || fail "$2: the weights differ" "$WORK/diff.txt"
  pass "$2, at step $step; resumed bit for bit"
}

# signal_when TARGET SIGNAL WHAT PATTERN: starts, sends SIGNAL when the output has PATTERN, waits.
# TARGET: launcher, or a rank's number. A run that was faster than the signal counts as undisturbed.
signal_when() {
  local target=$1 signal=$2 pattern=$4 out=$WORK/${3// /-} pid i
  start 2 train --out "$out" "${options[@]}" "${@:5}"
  for i in $(seq 2000); do
    grep -qs "$pattern" "$WORK/out.txt" && break
    kill -0 "$runner" 2> /dev/null || break
    sleep 0.01
  done
  if [ "$target" = launcher ]; then pid=$runner; else pid=$(rank_of "$out" "$target"); fi
  for i in $signal; do kill "-$i" "$pid" 2> /dev/null; done
  finish
  if [ "$code" = 0 ]; then
    pass "$3: the run was complete before the signal"
  else
    stopped_and_resumed "$out" "$3"
    landed=$((landed + 1))
  fi
}

landed=0
# As soon as a rank catches them, in MPI's start: nothing is written.
out=$WORK/early
start 2 train --out "$out" "${options[@]}"
for i in $(seq 2000); do
  pid=$(rank_of "$out" 1)
  [ -n "$pid" ] && [ $((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null || echo 0) & 0x200)) != 0 ] && break
done
kill -USR1 "$pid"
finish
[ -e "$out" ] && fail "USR1 in MPI's start: something was written"
stopped_and_resumed "$out" "USR1 to rank 1 in MPI's start (look $i)"

signal_when 0 USR1 "USR1 to rank 0 while it loads" "convoy "
signal_when 1 USR2 "USR2 to rank 1 while it loads" "data:"
signal_when launcher USR1 "USR1 to mpirun at the first step" "precision:"
signal_when 1 TERM "TERM to rank 1 in an epoch" "step 1/100"
signal_when 0 HUP "HUP to rank 0 in an epoch" "step 1/100"
signal_when launcher USR2 "USR2 to mpirun about the evaluation" "epoch 1/10: "
signal_when 0 USR1 "USR1 during a save" "checkpoint of step 4 " --checkpoint-every 1
signal_when 1 "USR1 USR1" "USR1 twice at once" "epoch 1/10"
signal_when launcher "USR1 USR2" "two signals to mpirun" "epoch 1/10"
[ "$landed" -ge 4 ] || fail "only $landed of 9 signals came before the run was complete"

# A signal in the last step: the run completes.
out=$WORK/last
start 2 train --out "$out" "${options[@]}" --steps 1
for i in $(seq 2000); do grep -qs "precision:" "$WORK/out.txt" && break; sleep 0.01; done
kill -USR1 "$(rank_of "$out" 1)" 2> /dev/null
finish
[ "$code" = 0 ] || [ "$code" = 75 ] || fail "a signal in the only step: exit code $code" "$WORK/err.txt"
pass "a signal about the only step: exit $code"

# Under nohup the terminal's end is none of the run's business.
out=$WORK/nohup
(trap '' HUP && exec "$CONVOY" train --out "$out" "${options[@]}" > "$WORK/out.txt" 2> "$WORK/err.txt") &
runner=$!
rows_in "$out" 12
kill -HUP "$runner"
finish
expect 0 "HUP to a run under nohup"
pass "HUP to a run under nohup: it goes on"

# TERM to mpirun leaves about a second: whatever happens, the run can be resumed.
out=$WORK/term
start 2 train --out "$out" "${options[@]}"
rows_in "$out" 12
kill -TERM "$runner"
finish
none_left "$out" "TERM to mpirun"
[ "$code" = 0 ] || code=75 # mpirun gives its own
stopped_and_resumed "$out" "TERM to mpirun"
