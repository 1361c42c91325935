#!/usr/bin/env bash
# Stopping and going on: the same bits as without the stop, signals, finished runs, refusals, numeric failure.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

data=$WORK/data
set_of "$data" 600 100 # batch 64: 10 steps an epoch, the last of 24
train() { # RANKS OUT OPTION...
  local count=$1 out=$2
  shift 2
  ranks "$count" train --data "$data" --out "$out" --backend cpu --threads 1 --deterministic --batch 64 --log-every 3 \
    --augment flip,crop "$@"
}
# same_run A B STEP WHAT: logs without times and the arrays of the last checkpoint are equal.
same_run() {
  diff <(no_times "$1/loss.csv") <(no_times "$2/loss.csv") > "$WORK/diff.txt" || fail "$4: loss.csv differs" "$WORK/diff.txt"
  diff <(cut -d, -f1-6 "$1/epochs.csv") <(cut -d, -f1-6 "$2/epochs.csv") > "$WORK/diff.txt" || fail "$4: epochs.csv differs" "$WORK/diff.txt"
  same_state "$1/checkpoints/step-$3.h5" "$2/checkpoints/step-$3.h5" "$data" > "$WORK/diff.txt" 2>&1 || fail "$4: parameters differ" "$WORK/diff.txt"
}

for count in 1 2; do
  for optimizer in adam sgd; do
    whole=$WORK/whole-$count-$optimizer part=$WORK/part-$count-$optimizer
    train "$count" "$whole" --epochs 3 --optimizer "$optimizer"
    expect 0 "the whole run"
    train "$count" "$part" --epochs 3 --optimizer "$optimizer" --steps 7
    expect 0 "--steps 7"
    [ -f "$part/checkpoints/step-00000007.h5" ] || fail "no checkpoint of step 7"
    train "$count" "$part" --epochs 3 --optimizer "$optimizer" --steps 20 --resume
    expect 0 "resume in the middle of an epoch"
    train "$count" "$part" --epochs 3 --optimizer "$optimizer" --resume
    expect 0 "resume at an epoch's end"
    same_run "$whole" "$part" 00000030 "np $count, $optimizer"
    pass "np $count, $optimizer: resumed twice, bit for bit the same"
  done
done

# A finished run.
whole=$WORK/whole-2-adam
find "$whole" -type f -exec cksum {} + | sort > "$WORK/before.txt"
find "$whole" -type f -printf '%p %T@\n' | sort >> "$WORK/before.txt"
train 2 "$whole" --epochs 3 --resume
expect 0 "a finished run"
grep -q "already complete" "$WORK/out.txt" || fail "does not say so" "$WORK/out.txt"
{ find "$whole" -type f -exec cksum {} + | sort; find "$whole" -type f -printf '%p %T@\n' | sort; } > "$WORK/after.txt"
cmp -s "$WORK/before.txt" "$WORK/after.txt" || fail "a finished run was changed" "$WORK/before.txt" "$WORK/after.txt"
pass "a finished run is left as it is"

changes=("--model resnet20" "--seed 5" "--batch 50" "--optimizer sgd")
train 1 "$WORK/bf16" --epochs 1 --precision bf16 --steps 1
[ "$code" = 0 ] && changes+=("--precision bf16") # where this CPU has it
for change in "${changes[@]}"; do
  # shellcheck disable=SC2086
  train 2 "$whole" --epochs 4 --resume $change
  expect 2 "resume with $change"
  one_error "resume with $change"
  option=${change% *}
  grep -Eq "^error: ${option#--} is ${change##* }, .* has [^ ]+:" "$WORK/err.txt" || fail "the error does not name both values" "$WORK/err.txt"
done
"$CONVOY" data synth "$WORK/other" --classes 8 --train 600 --test 100 > "$WORK/synth.txt" 2>&1 || fail "data synth" "$WORK/synth.txt"
mv "$data" "$data.real" && mv "$WORK/other" "$data"
train 1 "$whole" --epochs 4 --resume
expect 2 "resume with other classes"
one_error "resume with other classes"
grep -q "classes is 8, .* has 10" "$WORK/err.txt" || fail "other classes: the error does not name both" "$WORK/err.txt"
rm -r "$data" && mv "$data.real" "$data"
set_of "$WORK/other" 600 90
mv "$data" "$data.real" && mv "$WORK/other" "$data"
train 1 "$whole" --epochs 4 --resume
expect 2 "resume with other data"
one_error "resume with other data"
grep -Eq "^error: data-digest is [0-9a-f]{16}, .* has [0-9a-f]{16}:" "$WORK/err.txt" || fail "other data: the error does not name both" "$WORK/err.txt"
rm -r "$data" && mv "$data.real" "$data"
{ find "$whole" -type f -exec cksum {} + | sort; find "$whole" -type f -printf '%p %T@\n' | sort; } > "$WORK/after.txt"
cmp -s "$WORK/before.txt" "$WORK/after.txt" || fail "a refused resume changed files" "$WORK/before.txt" "$WORK/after.txt"
pass "another model, seed, batch, optimizer or data is refused, nothing touched"

train 3 "$whole" --epochs 4 --resume
expect 0 "more epochs on another number of ranks"
[ "$(tail -1 "$whole/epochs.csv" | cut -d, -f1,2)" = 4,40 ] || fail "no fourth epoch" "$whole/epochs.csv"
[ "$(cut -d, -f1 "$whole/loss.csv" | sort | uniq -d)" = "" ] || fail "a step stands twice" "$whole/loss.csv"
pass "more epochs continue, on another number of ranks"

# Two jobs on one folder: the second is refused and named the first; the first is not disturbed.
train 1 "$WORK/shared" --epochs 2000 &
first=$!
for _ in $(seq 600); do [ -f "$WORK/shared/epochs.csv" ] && break; sleep 0.1; done
for mode in --resume --overwrite ""; do
  code=0
  # shellcheck disable=SC2086
  "$CONVOY" train --data "$data" --out "$WORK/shared" --backend cpu --threads 1 --batch 64 $mode > "$WORK/out2.txt" 2> "$WORK/err2.txt" || code=$?
  [ "$code" = 2 ] || fail "a second job, $mode: exit code $code" "$WORK/err2.txt"
  grep -Eq "^error: .*shared is in use by another job \(host .*, process [0-9]+\)" "$WORK/err2.txt" || fail "a second job: the error" "$WORK/err2.txt"
done
process=$(sed -n 's/.*process \([0-9]*\)).*/\1/p' "$WORK/err2.txt")
kill -USR1 "$process"
wait "$first"
grep -q "stopped by a signal" "$WORK/out.txt" || fail "two jobs: the first was disturbed" "$WORK/out.txt" "$WORK/err.txt"
pass "a second job on the folder is refused and told whose it is"

train 1 "$WORK/part-1-sgd" --epochs 1 --overwrite
expect 0 "--overwrite"
[ "$(wc -l < "$WORK/part-1-sgd/epochs.csv")" = 2 ] || fail "--overwrite left old rows" "$WORK/part-1-sgd/epochs.csv"
[ -f "$WORK/part-1-sgd/checkpoints/step-00000030.h5" ] && fail "--overwrite left an old checkpoint"
pass "--overwrite starts anew"

train 1 "$WORK/fresh" --epochs 1 --resume
expect 0 "--resume without a former run"
grep -q "starting from step 0" "$WORK/out.txt" || fail "does not say so" "$WORK/out.txt"
pass "--resume without a former run starts one"

# A signal to one rank only: all ranks stop after the same step.
set_of "$WORK/long" 2000 100
signal_run() { # RANKS OUT
  ranks "$1" train --data "$WORK/long" --out "$2" --backend cpu --threads 1 --deterministic --batch 50 --epochs 50 --log-every 1 "${@:3}"
}
for count in 1 2; do
  out=$WORK/signal-$count
  signal_run "$count" "$out" &
  runner=$!
  for _ in $(seq 600); do
    [ -f "$out/loss.csv" ] && [ "$(wc -l < "$out/loss.csv")" -gt 5 ] && break
    sleep 0.1
  done
  victim=$(for process in /proc/[0-9]*; do
    [ "$(readlink "$process/exe")" = "$(readlink -f "$CONVOY")" ] || continue
    tr '\0' ' ' < "$process/cmdline" | grep -q -- "--out $out " && echo "${process#/proc/}"
  done 2> /dev/null | tail -1)
  kill -USR1 "$victim" || fail "cannot signal '$victim'"
  wait "$runner"
  grep -q "stopped by a signal" "$WORK/out.txt" || fail "np $count: not stopped" "$WORK/out.txt" "$WORK/err.txt"
  step=$(sed -n 's/.*stopped by a signal at step \([0-9]*\).*/\1/p' "$WORK/out.txt")
  [ -f "$out/checkpoints/step-$(printf %08d "$step").h5" ] || fail "np $count: no checkpoint of step $step"
  [ "$(tail -1 "$out/loss.csv" | cut -d, -f1)" = "$step" ] || fail "np $count: loss.csv ends elsewhere" "$out/loss.csv"
  signal_run "$count" "$out" --resume --steps $((step + 15))
  expect 0 "np $count: resume after a signal"
  signal_run "$count" "$out-whole" --steps $((step + 15))
  expect 0 "np $count: the same without a signal"
  diff <(no_times "$out/loss.csv") <(no_times "$out-whole/loss.csv") > "$WORK/diff.txt" || fail "np $count: losses differ" "$WORK/diff.txt"
  pass "np $count: USR1 to one rank at step $step, resumed bit for bit"
done
# The exit code, through mpirun too.
for count in 1 2; do
  out=$WORK/code-$count
  if [ "$count" = 1 ]; then set -- "$CONVOY"; else set -- mpirun --oversubscribe --bind-to none -np "$count" "$CONVOY"; fi
  "$@" train --data "$WORK/long" --out "$out" --backend cpu --threads 1 --epochs 50 > "$WORK/out.txt" 2> "$WORK/err.txt" &
  runner=$!
  for _ in $(seq 600); do
    [ -f "$out/loss.csv" ] && [ "$(wc -l < "$out/loss.csv")" -gt 1 ] && break
    sleep 0.1
  done
  kill -USR2 "$runner"
  code=0
  wait "$runner" || code=$?
  expect 75 "np $count: USR2"
  grep -q '^error' "$WORK/err.txt" && fail "np $count: a stop is no error" "$WORK/err.txt"
  pass "np $count: USR2 gives 75"
done

for count in 1 2; do
  train "$count" "$WORK/nan-$count" --epochs 2 --lr 1e30 --checkpoint-every 1
  expect 3 "np $count: --lr 1e30"
  one_error "np $count: --lr 1e30"
  grep -qi nan "$WORK/nan-$count/loss.csv" && fail "nan in loss.csv" "$WORK/nan-$count/loss.csv"
  pass "np $count: a loss that is not finite ends the run with 3"
done
