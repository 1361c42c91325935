#!/usr/bin/env bash
# convoy train --init: a run starts from another one's weights, with a new last layer for other classes.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

ten=$WORK/ten eight=$WORK/eight
set_of "$ten" 256 64
"$CONVOY" data synth "$eight" --classes 8 --train 256 --test 64 > "$WORK/synth.txt" 2>&1 || fail "data synth" "$WORK/synth.txt"
train() { # RANKS DATA OUT OPTION...
  local count=$1 data=$2 out=$3
  shift 3
  ranks "$count" train --data "$data" --out "$WORK/$out" --backend cpu --threads 1 --log-every 1 "$@"
}
newest() { local files=("$WORK/$1"/checkpoints/step-*.h5); echo "${files[-1]}"; }
compare() { "$(dirname "$CONVOY")/../tests/compare_arrays" "$(newest "$1")" "$(newest "$2")" "${@:3}" > "$WORK/out.txt" 2>&1; }

train 1 "$ten" base --epochs 1
expect 0 "the first run"
train 1 "$ten" same --init "$WORK/base" --steps 1 --lr 1e-30
expect 0 "a run from another's weights"
grep -q '^init: .*base/checkpoints/step-00000002.h5, step 2; 4 arrays taken$' "$WORK/out.txt" || fail "it does not say what was taken" "$WORK/out.txt"
compare same base /parameters || fail "the weights are not the first run's" "$WORK/out.txt"
train 1 "$ten" fresh --steps 1 --lr 1e-30
compare fresh base /parameters && fail "every run has these weights"
pass "a run starts from another's weights"

train 1 "$ten" one --init "$WORK/base" --epochs 1
train 2 "$ten" two --init "$WORK/base" --epochs 1
expect 0 "--init on two ranks"
close_losses "$WORK/one/loss.csv" "$WORK/two/loss.csv" 1e-5 || fail "two ranks start elsewhere" "$WORK/one/loss.csv" "$WORK/two/loss.csv"
pass "all ranks start from them"

train 1 "$eight" tuned --init "$(newest base)" --epochs 1
expect 0 "a run with other classes"
grep -q '^init: .*; 2 arrays taken, new: fc.weight$' "$WORK/out.txt" || fail "no new last layer" "$WORK/out.txt"
train 1 "$eight" kept --init "$(newest base)" --epochs 1 --freeze 'fc.*'
grep -q '^warning: --freeze keeps fc.weight, which is new' "$WORK/err.txt" || fail "a frozen new layer is not told" "$WORK/err.txt"
pass "other classes get a new last layer"

# Once a run has a checkpoint of its own, it no longer needs the other's.
train 1 "$ten" moved --init "$WORK/base" --epochs 1 --steps 1
expect 0 "the first part"
mv "$WORK/base" "$WORK/elsewhere"
train 1 "$ten" moved --init "$WORK/base" --epochs 1 --resume --check
expect 0 "checking before that"
train 1 "$ten" moved --init "$WORK/base" --epochs 1 --resume
expect 0 "resuming without the other run's files"
compare moved one /parameters /optimizer || fail "resumed differently" "$WORK/out.txt"
pass "a resumed run does not start again from them"

train 1 "$ten" none --init "$WORK/base"
expect 2 "no such run"
one_error "no such run"
train 1 "$ten" none --init "$WORK/elsewhere" --model resnet20
expect 2 "another model"
one_error "another model"
grep -q "holds model simplecnn; --model is resnet20" "$WORK/err.txt" || fail "both models are not named" "$WORK/err.txt"
train 1 "$ten" none --init "$WORK/elsewhere" --model resnet20 --check
expect 2 "another model, --check"
[ -e "$WORK/none" ] && fail "a refused run wrote something"
pass "refused: no such run, another model"
