#!/usr/bin/env bash
# Fine-tuning: --freeze and --lora. A resnet20 of 8 classes learns 2 others by adapters as well as by all its weights;
# what eval, export and --init make of the result is the merged model; resuming and lanes keep the bits.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

all=$WORK/all eight=$WORK/eight two=$WORK/two
"$CONVOY" data synth "$all" --size 16 --train 1500 --test 1000 > "$WORK/synth.txt" 2>&1 || fail "data synth" "$WORK/synth.txt"
subset() { # DIR CLASSES
  "$CONVOY" data import --from "$all" --out "$1" --keep-classes "$2" > "$WORK/synth.txt" 2>&1 || fail "the subset $2" "$WORK/synth.txt"
}
subset "$eight" 0,1,2,3,4,5,6,7
subset "$two" 8,9
train() { # RANKS DATA OUT OPTION...
  local count=$1 data=$2 out=$3
  shift 3
  ranks "$count" train --data "$data" --out "$WORK/$out" --model resnet20 --backend cpu --threads 1 "$@"
}
newest() { local files=("$WORK/$1"/checkpoints/step-*.h5); echo "${files[-1]}"; }
accuracy() { # RUN: that of its newest checkpoint
  ranks 2 eval --data "$two" --checkpoint "$WORK/$1" --backend cpu --threads 1
  expect 0 "eval of $1"
  tail -1 "$WORK/out.txt" > "$WORK/$1.json"
  sed 's/.*"accuracy":\([^,]*\),.*/\1/' "$WORK/$1.json"
}
same_loss() { # JSON JSON: two evaluations agree but for rounding
  paste -d' ' <(sed 's/.*"loss":\([^}]*\)}/\1/' "$1") <(sed 's/.*"loss":\([^}]*\)}/\1/' "$2") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; exit !(NF == 2 && d <= 1e-5) }' || fail "$1 and $2 are of different models" "$1" "$2"
}

train 2 "$eight" base --epochs 4 --batch 64 --lr 0.005
expect 0 "the first training"

# ---- adapters ----
train 2 "$two" full --init "$WORK/base" --epochs 4 --batch 32 --lr 0.003
expect 0 "training all weights"
train 2 "$two" lora --init "$WORK/base" --epochs 6 --batch 32 --lr 0.01 --lora 4 --lora-alpha 8
expect 0 "training adapters"
share=$(sed -n 's/.*; [0-9]* of them trained (\([0-9.]*\) %).*/\1/p' "$WORK/out.txt")
awk -v share="$share" 'BEGIN { exit !(share > 0 && share < 10) }' || fail "'$share' % of the parameters are trained" "$WORK/out.txt"
train 2 "$two" head --init "$WORK/base" --epochs 4 --batch 32 --lr 0.01 --freeze 'conv1.*,bn1.*,layer*'
expect 0 "training the last layer"
a=$(accuracy full) b=$(accuracy lora) c=$(accuracy head)
echo "accuracy: all weights $a, adapters ($share %) $b, the last layer $c"
awk -v a="$a" -v b="$b" -v c="$c" 'BEGIN { exit !(a >= 0.9 && b >= a - 0.02 && b > c) }' || fail "adapters do not reach what all weights do: $a, $b"
pass "adapters of $share % of the parameters are within two points of training all"

# epochs.csv has what the graph with adapters computed, eval what the merged weights do
tail -1 "$WORK/lora/epochs.csv" | cut -d, -f5,6 | sed 's/\(.*\),\(.*\)/{"accuracy":\2,"loss":\1}/' > "$WORK/unmerged.json"
same_loss "$WORK/unmerged.json" "$WORK/lora.json"
ranks 1 export --checkpoint "$WORK/lora" --format safetensors --out "$WORK/lora.safetensors"
expect 0 "export of a model with adapters"
grep -aq lora "$WORK/lora.safetensors" && fail "the export still has adapters"
ranks 1 import-weights "$WORK/lora.safetensors" --out "$WORK/back"
expect 0 "import of the merged weights"
accuracy back > "$WORK/back.txt"
same_loss "$WORK/back.json" "$WORK/lora.json"
train 1 "$two" again --init "$WORK/lora" --steps 1 --lr 1e-30 --freeze '*bn*,*downsample.1*'
expect 0 "a run from the merged weights"
accuracy again > "$WORK/again.txt"
same_loss "$WORK/again.json" "$WORK/lora.json"
pass "eval, export and --init have the adapters merged"

# ---- resuming, lanes ----
adapt() { train "$1" "$two" "$2" --init "$WORK/base" --epochs 1 --batch 48 --lr 0.01 --lora 2 --lanes 2 --log-every 1 "${@:3}"; }
adapt 2 whole
expect 0 "adapters with lanes"
adapt 1 parts --steps 3
expect 0 "the first part"
adapt 1 parts --resume --lora 3
expect 2 "another rank"
grep -q 'lora is 3, but checkpoint .* has 2' "$WORK/err.txt" || fail "the rank is not named" "$WORK/err.txt"
train 1 "$two" parts --init "$WORK/base" --epochs 1 --batch 48 --lr 0.01 --lanes 2 --resume
expect 2 "no adapters"
adapt 2 parts --resume
expect 0 "the second part"
same_arrays "$(newest whole)" "$(newest parts)" > "$WORK/diff.txt" 2>&1 || fail "resumed with other bits" "$WORK/diff.txt"
pass "adapters resume on another number of ranks, bit for bit"

# ---- refusals ----
refused() { # WHAT TEXT OPTION...
  local what=$1 text=$2
  shift 2
  train 1 "$two" none --init "$WORK/base" "$@"
  expect 2 "$what"
  one_error "$what"
  grep -q -- "$text" "$WORK/err.txt" || fail "$what: the error does not say '$text'" "$WORK/err.txt"
}
refused "no such parameter" "no parameter's name matches 'layr1.\*'; the nearest is 'layer1.0.conv1.weight'" --freeze 'conv1.*,layr1.*'
refused "everything frozen" "freezes all parameters" --freeze '*'
refused "alpha alone" "without --lora" --lora-alpha 4
refused "rank 0" "--lora" --lora 0
refused "no such parameter, --check" "matches 'x'" --freeze x --check
[ -e "$WORK/none" ] && fail "a refused run wrote something"
pass "refused: what cannot be frozen or adapted"
