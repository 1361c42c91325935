#!/usr/bin/env bash
# --lanes: the same bits at any number of ranks and threads, also across a stop; evaluation is the same at any number of
# ranks with or without lanes; without lanes a run goes on at another number of ranks with the samples it has not used.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

set_of "$WORK/data" 301 130 # batch 37: 9 steps an epoch, the last of 5, so three of eight lanes are empty
set_of "$WORK/tiny" 63 40   # batch 20: 4 steps an epoch, the last of 3

# train RANKS DATA OUT OPTION...
train() {
  local count=$1 data=$2 out=$3
  shift 3
  ranks "$count" train --data "$WORK/$data" --out "$WORK/$out" --backend cpu --log-every 1 --eval-batch 16 \
    --augment flip,crop "$@"
}
simplecnn=(--model simplecnn --batch 37 --epochs 2 --deterministic)
resnet20=(--model resnet20 --batch 20 --epochs 2 --optimizer sgd --lr 0.05 --weight-decay 0.001)

# same_run A B WHAT: logs without times and the last checkpoints' arrays are equal.
same_run() {
  local a=$WORK/$1 b=$WORK/$2
  diff <(no_times "$a/loss.csv") <(no_times "$b/loss.csv") > "$WORK/diff.txt" || fail "$3: loss.csv differs" "$WORK/diff.txt"
  diff <(cut -d, -f1-6 "$a/epochs.csv") <(cut -d, -f1-6 "$b/epochs.csv") > "$WORK/diff.txt" || fail "$3: epochs.csv differs" "$WORK/diff.txt"
  [ "$(wc -l < "$a/epochs.csv")" = 3 ] || fail "$3: not two epochs" "$a/epochs.csv"
  local last
  last=$(printf 'step-%08d.h5' "$(tail -1 "$a/loss.csv" | cut -d, -f1)")
  same_arrays "$a/checkpoints/$last" "$b/checkpoints/$last" > "$WORK/diff.txt" ||
    fail "$3: checkpoints differ" "$WORK/diff.txt"
}

# ---- ranks ----
for count in 1 2 4 8; do
  train "$count" data "cnn-$count" "${simplecnn[@]}" --lanes 8
  expect 0 "simplecnn, np $count"
  grep -q "lanes: 8, $((8 / count)) a rank, one thread" "$WORK/out.txt" || fail "the banner does not say so" "$WORK/out.txt"
  same_run cnn-1 "cnn-$count" "simplecnn, np $count"
  train "$count" tiny "res-$count" "${resnet20[@]}" --lanes 8
  expect 0 "resnet20, np $count"
  same_run res-1 "res-$count" "resnet20, np $count"
  pass "np $count: simplecnn and resnet20 have the bits of one rank"
done
grep -q '"lanes":[[:space:]]*8' "$WORK/res-8/run.json" || fail "run.json does not name the lanes" "$WORK/res-8/run.json"
grep -q '"deterministic":[[:space:]]*true' "$WORK/res-8/run.json" || fail "lanes are not deterministic" "$WORK/res-8/run.json"

train 1 data cnn-four "${simplecnn[@]}" --lanes 4
expect 0 "four lanes"
cmp -s "$WORK/cnn-1/loss.csv" "$WORK/cnn-four/loss.csv" && fail "four lanes have the bits of eight"
same_arrays "$WORK/cnn-1/checkpoints/step-00000018.h5" "$WORK/cnn-four/checkpoints/step-00000018.h5" > "$WORK/diff.txt" &&
  fail "four lanes have the bits of eight" "$WORK/diff.txt"
close_losses "$WORK/cnn-1/loss.csv" "$WORK/cnn-four/loss.csv" 1e-4 || fail "four lanes are far from eight"
pass "another number of lanes: close, but other bits"

# ---- threads ----
OMP_NUM_THREADS=3 train 1 data omp-1 "${simplecnn[@]}" --lanes 8
same_run cnn-1 omp-1 "OMP_NUM_THREADS=3"
OMP_NUM_THREADS=3 train 2 tiny omp-2 "${resnet20[@]}" --lanes 8
same_run res-1 omp-2 "np 2, OMP_NUM_THREADS=3"
OMP_NUM_THREADS=1 train 1 tiny threads "${resnet20[@]}" --lanes 8 --threads 3
same_run res-1 threads "--threads 3"
grep -q -- "--threads 3 has no effect with --lanes" "$WORK/out.txt" "$WORK/err.txt" || fail "--threads: no warning" "$WORK/out.txt" "$WORK/err.txt"
pass "threads make no difference"

# ---- a stop in the middle of an epoch ----
train 2 data part "${simplecnn[@]}" --lanes 8 --steps 5
expect 0 "--steps 5 on two ranks"
train 2 tiny small "${resnet20[@]}" --lanes 8 --steps 6
expect 0 "--steps 6 on two ranks"
for count in 8 4 1; do
  cp -r "$WORK/part" "$WORK/part-$count"
  train "$count" data "part-$count" "${simplecnn[@]}" --lanes 8 --resume
  expect 0 "resume on $count ranks"
  same_run cnn-1 "part-$count" "resumed on $count ranks"
  cp -r "$WORK/small" "$WORK/small-$count"
  train "$count" tiny "small-$count" "${resnet20[@]}" --lanes 8 --resume
  same_run res-1 "small-$count" "resnet20 resumed on $count ranks"
  pass "stopped on 2 ranks, resumed on $count: the same bits"
done
for lanes in 4 0; do
  train 2 data part "${simplecnn[@]}" --lanes $lanes --resume
  expect 2 "resume with --lanes $lanes"
  one_error "resume with --lanes $lanes"
  grep -q "lanes is $lanes, .* has 8" "$WORK/err.txt" || fail "the error does not name both" "$WORK/err.txt"
done
pass "another number of lanes is refused"

# ---- refusals ----
refuse() { # RANKS PATTERN OPTION...
  local count=$1 pattern=$2
  shift 2
  train "$count" data refused "$@"
  expect 2 "np $count: $*"
  one_error "np $count: $*"
  grep '^error: ' "$WORK/err.txt" | grep -q "$pattern" || fail "no '$pattern' in the error" "$WORK/err.txt"
  [ -e "$WORK/refused" ] && fail "np $count: $*: something was written"
}
refuse 1 "lanes is 3" --lanes 3
refuse 4 "lanes 2 .* 4 ranks" --lanes 2
refuse 3 "lanes 8 .* 3 ranks" --lanes 8
pass "lanes that the ranks cannot share are refused"

# ---- evaluation without lanes ----
for count in 1 2 3 4; do
  ranks "$count" eval --data "$WORK/data" --checkpoint "$WORK/cnn-1" --backend cpu --threads 1 --eval-batch 16
  expect 0 "eval, np $count"
  tail -1 "$WORK/out.txt" > "$WORK/eval-$count.json"
  cmp -s "$WORK/eval-1.json" "$WORK/eval-$count.json" || fail "eval on $count ranks differs" "$WORK/eval-1.json" "$WORK/eval-$count.json"
done
grep -q '"samples":130,' "$WORK/eval-1.json" || fail "not every image once" "$WORK/eval-1.json"
loss=$(tail -1 "$WORK/cnn-1/epochs.csv" | cut -d, -f5)
grep -q "\"loss\":$loss}" "$WORK/eval-1.json" || fail "eval is not the run's test loss" "$WORK/eval-1.json" "$WORK/cnn-1/epochs.csv"
pass "evaluation is the same on 1, 2, 3 and 4 ranks, and in the run"

# ---- another number of ranks without lanes ----
plain=(--model simplecnn --batch 37 --epochs 2 --optimizer sgd --lr 0.01 --threads 1 --deterministic)
train 1 data plain "${plain[@]}"
expect 0 "one rank without lanes"
train 2 data moved "${plain[@]}" --steps 5
for steps in 12 18; do
  train $((steps / 4)) data moved "${plain[@]}" --steps $steps --resume
  expect 0 "resume up to step $steps on $((steps / 4)) ranks"
done
close_losses "$WORK/plain/loss.csv" "$WORK/moved/loss.csv" 1e-4 > "$WORK/diff.txt" ||
  fail "resumed on 3 and 4 ranks: losses are apart" "$WORK/diff.txt" "$WORK/plain/loss.csv" "$WORK/moved/loss.csv"
[ "$(cut -d, -f1-2 "$WORK/plain/loss.csv")" = "$(cut -d, -f1-2 "$WORK/moved/loss.csv")" ] || fail "other steps"
pass "without lanes: 2, then 3, then 4 ranks follow the run on one rank"
