#!/usr/bin/env bash
# --lanes on GPUs: two runs, and runs on 1, 2, 4 and 8 GPUs as far as there are, have the same bits, also across a stop.
NEEDS=cuda
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
gpus=$(nvidia-smi -L 2> /dev/null | wc -l)
[ "$gpus" -ge 1 ] || { leave_out "everything: no GPU"; exit 77; }
echo "$gpus GPUs"

set_of "$WORK/data" 1100 300 # batch 250: 5 steps an epoch, the last of 100; lanes of 32, 31, 13 and 12

# train RANKS OUT OPTION...
train() {
  local count=$1 out=$2
  shift 2
  ranks "$count" train --data "$WORK/data" --out "$WORK/$out" --backend cuda --log-every 1 --augment flip,crop \
    --batch 250 --epochs 2 --lanes 8 "$@"
  expect 0 "np $count: $*"
}
# same_run A B WHAT: logs without times and the last checkpoints' arrays are equal.
same_run() {
  local a=$WORK/$1 b=$WORK/$2
  [ "$(wc -l < "$a/loss.csv")" = 11 ] || fail "$3: not ten steps" "$a/loss.csv"
  diff <(no_times "$a/loss.csv") <(no_times "$b/loss.csv") > "$WORK/diff.txt" || fail "$3: loss.csv differs" "$WORK/diff.txt"
  diff <(cut -d, -f1-6 "$a/epochs.csv") <(cut -d, -f1-6 "$b/epochs.csv") > "$WORK/diff.txt" || fail "$3: epochs.csv differs" "$WORK/diff.txt"
  same_arrays "$a/checkpoints/step-00000010.h5" "$b/checkpoints/step-00000010.h5" > "$WORK/diff.txt" ||
    fail "$3: checkpoints differ" "$WORK/diff.txt"
}

for options in "--model simplecnn" "--model resnet20 --optimizer sgd --lr 0.05" "--model resnet18 --precision bf16"; do
  read -ra words <<< "$options"
  name=${words[1]}
  train 1 "$name-1" "${words[@]}"
  train 1 "$name-again" "${words[@]}"
  same_run "$name-1" "$name-again" "$options, again"
  most=1
  for count in 2 4 8; do
    [ "$count" -le "$gpus" ] || break
    most=$count
    train "$count" "$name-$count" "${words[@]}"
    same_run "$name-1" "$name-$count" "$options, np $count"
  done
  train "$most" "$name-part" "${words[@]}" --steps 3
  train 1 "$name-part" "${words[@]}" --resume
  same_run "$name-1" "$name-part" "$options, stopped on $most, resumed on 1"
  pass "$options: the same bits on 1 to $most GPUs, and stopped on $most, resumed on 1"
done
