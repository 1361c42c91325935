#!/usr/bin/env bash
# Training and evaluation as a user runs them: results do not depend on the number of ranks, every test image counts
# once, the files of a run are as documented.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

data=$WORK/data
set_of "$data" 1000 333 # uneven everywhere: 8 steps, the last of 104; 333 test images
train() { # RANKS OUT OPTION...
  local count=$1 out=$2
  shift 2
  ranks "$count" train --data "$data" --out "$out" --backend cpu --threads 1 --log-every 1 "$@"
}

train 1 "$WORK/np1" --epochs 2
expect 0 "training on one rank"
[ -f "$WORK/np1/checkpoints/step-00000016.h5" ] || fail "no checkpoint of the last step"
[ -f "$WORK/np1/checkpoints/best.h5" ] || fail "no best.h5"
[ -f "$WORK/np1/run.json" ] || fail "no run.json"
[ "$(head -1 "$WORK/np1/loss.csv")" = "step,epoch,loss,lr,images_per_s,seconds" ] || fail "header of loss.csv" "$WORK/np1/loss.csv"
[ "$(wc -l < "$WORK/np1/loss.csv")" = 17 ] || fail "loss.csv has not 16 rows" "$WORK/np1/loss.csv"
[ "$(wc -l < "$WORK/np1/epochs.csv")" = 3 ] || fail "epochs.csv has not 2 rows" "$WORK/np1/epochs.csv"
grep -q $'[\r\033]' "$WORK/out.txt" && fail "control characters in a file" "$WORK/out.txt"
awk -F, 'NR == 2 { first = $3 } { last = $3 } END { exit !(last < 0.9 * first) }' "$WORK/np1/loss.csv" || fail "the loss does not fall" "$WORK/np1/loss.csv"
pass "one rank trains; files as documented"

ranks 1 eval --data "$data" --checkpoint "$WORK/np1" --backend cpu
expect 0 "evaluation on one rank"
tail -1 "$WORK/out.txt" > "$WORK/np1.json"
grep -Eq '^\{"samples":333,"correct":[0-9]+,"accuracy":[0-9.e-]+,"loss":[0-9.e-]+\}$' "$WORK/np1.json" || fail "the result's line" "$WORK/out.txt"
accuracy=$(sed 's/.*"accuracy":\([^,]*\),.*/\1/' "$WORK/np1.json")
[ "$accuracy" = "$(tail -1 "$WORK/np1/epochs.csv" | cut -d, -f6)" ] || fail "eval and epochs.csv differ" "$WORK/np1.json" "$WORK/np1/epochs.csv"
pass "evaluation agrees with the run's own"

# A rank without a launcher makes nothing in TMPDIR, where all of one user would meet and remove each other's folder.
code=0
TMPDIR=$WORK/np1.json "$CONVOY" data info "$data" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 0 "a rank without a launcher and without a temporary folder"
pass "ranks without a launcher do not meet"

correct=$(sed 's/.*"correct":\([0-9]*\),.*/\1/' "$WORK/np1.json")
for count in 2 3 4; do
  train "$count" "$WORK/np$count" --epochs 2
  expect 0 "training on $count ranks"
  close_losses "$WORK/np1/loss.csv" "$WORK/np$count/loss.csv" 1e-5 || fail "losses differ on $count ranks" "$WORK/np1/loss.csv" "$WORK/np$count/loss.csv"
  ranks "$count" eval --data "$data" --checkpoint "$WORK/np1" --backend cpu --eval-batch 50
  expect 0 "evaluation on $count ranks"
  tail -1 "$WORK/out.txt" | grep -q "\"samples\":333,\"correct\":$correct," || fail "other counts on $count ranks" "$WORK/out.txt" "$WORK/np1.json"
  pass "$count ranks: losses within 1e-5, the same counts"
done

# Fewer samples in the last step than ranks: 1000 = 3 * 333 + 1.
train 1 "$WORK/tail1" --epochs 1 --batch 333
expect 0 "a last step of one sample"
train 3 "$WORK/tail3" --epochs 1 --batch 333
expect 0 "a last step of one sample on 3 ranks"
close_losses "$WORK/tail1/loss.csv" "$WORK/tail3/loss.csv" 1e-4 || fail "a last step of one sample differs" "$WORK/tail1/loss.csv" "$WORK/tail3/loss.csv"
pass "ranks without a sample take part"

train 2 "$WORK/sgd" --epochs 1 --optimizer sgd --lr 0.01 --momentum 0.9 --nesterov --weight-decay 5e-4 --schedule cosine \
  --warmup-steps 2 --augment flip,crop --label-smoothing 0.1 --scale-lr linear --base-batch 64
expect 0 "sgd with a schedule"
[ "$(sed -n 3p "$WORK/sgd/loss.csv" | cut -d, -f4 | cut -c1-5)" = 0.02 ] || [ "$(sed -n 3p "$WORK/sgd/loss.csv" | cut -d, -f4 | cut -c1-8)" = 0.019999 ] || fail "rate after the warm-up" "$WORK/sgd/loss.csv"
pass "sgd, schedule, warm-up, scaled rate, augmentation"

printf 'epochs = 1\nbatch = 500\nlr = 0.5\n' > "$WORK/run.conf"
train 1 "$WORK/config" --config "$WORK/run.conf" --lr 0.001
expect 0 "a config file"
[ "$(tail -1 "$WORK/config/loss.csv" | cut -d, -f1,2)" = 2,1 ] || fail "the config file's batch" "$WORK/config/loss.csv"
grep -q '"lr":[[:space:]]*0.001' "$WORK/config/run.json" || fail "the command line does not win" "$WORK/config/run.json"
pass "config file; the command line wins"

train 2 "$WORK/none" --check
expect 0 "--check"
[ -e "$WORK/none" ] && fail "--check wrote something"
grep -q '^model: simplecnn' "$WORK/out.txt" || fail "--check prints no plan" "$WORK/out.txt"
pass "--check writes nothing"

for option in --help "train --help" "eval --help" --version; do
  # shellcheck disable=SC2086
  env -i SLURM_STEP_ID=1 "$CONVOY" $option > "$WORK/out.txt" 2>&1 || fail "$option" "$WORK/out.txt"
  [ -s "$WORK/out.txt" ] || fail "$option says nothing"
done
pass "help and version need no launcher"
