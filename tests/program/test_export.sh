#!/usr/bin/env bash
# convoy export, predict and import-weights, checked against the programs that read what they write: ONNX Runtime and
# safetensors, each where CONVOY_PYTHON (see lib.sh) has it. torchvision has a suite of its own.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
here=$(dirname "$0")
check() { "$CONVOY_PYTHON" "$here/export_check.py" "$@" > "$WORK/out.txt" 2>&1 || fail "export_check.py $1" "$WORK/out.txt"; }
modules numpy h5py || exit 77

data=$WORK/data
set_of "$data" 384 150
shard=$data/test-00000-of-00001.h5
train() { # MODEL OPTION...
  local model=$1
  shift
  ranks 1 train --data "$data" --out "$WORK/$model" --model "$model" --backend cpu --batch 64 "$@"
  expect 0 "training $model"
}
export_to() { # MODEL FORMAT
  ranks 1 export --checkpoint "$WORK/$1" --format "$2" --out "$WORK/$1.$2"
  expect 0 "export of $1 as $2"
  [ -s "$WORK/$1.$2" ] || fail "$1.$2 is empty"
}
train simplecnn --epochs 1
train resnet20 --steps 2

# ---- predict ----
mkdir "$WORK/images"
check images "$shard" "$WORK/images"
for model in simplecnn resnet20; do
  ranks 1 predict --checkpoint "$WORK/$model" --backend cpu --json "$WORK/images"
  expect 0 "predict with $model"
  cp "$WORK/out.txt" "$WORK/$model.json"
  [ "$(wc -l < "$WORK/$model.json")" = 150 ] || fail "not one line an image" "$WORK/$model.json"
  right=$(sed -n 's/.*-\([0-9]*\)\.png".*"label":\([0-9]*\),.*/\1 \2/p' "$WORK/$model.json" | awk '$1 == $2' | wc -l)
  ranks 1 eval --data "$data" --checkpoint "$WORK/$model" --backend cpu
  expect 0 "eval of $model"
  grep -q "\"samples\":150,\"correct\":$right," "$WORK/out.txt" || fail "predict is right $right times, eval says otherwise" "$WORK/out.txt"
done
pass "predict agrees with eval image by image"

ranks 1 predict --checkpoint "$WORK/simplecnn" --backend cpu --batch 7 --json "$WORK/images"/0001?-*.png
expect 0 "predict of files"
cp "$WORK/out.txt" "$WORK/some.json"
sed -n 11,20p "$WORK/simplecnn.json" > "$WORK/expected.json"
check same "$WORK/some.json" "$WORK/expected.json"
ranks 1 predict --checkpoint "$WORK/simplecnn" --backend cpu "$WORK/images"
expect 0 "predict as a table"
sed 's/.*"file":"\([^"]*\)","class":"\([^"]*\)".*/\1 \2/' "$WORK/simplecnn.json" > "$WORK/expected.txt"
awk 'NR > 1 { print $1, $2; if ($3 < 0.1 || $3 > 1) exit 1 }' "$WORK/out.txt" | diff - "$WORK/expected.txt" > "$WORK/diff.txt" || fail "table and JSON differ" "$WORK/diff.txt"
pass "results depend neither on the batch nor on the format"

refused() { # WHAT TEXT ARGUMENT...: exit 2 and one error line with that text
  local what=$1 text=$2
  shift 2
  ranks 1 "$@"
  expect 2 "$what"
  one_error "$what"
  grep -q "$text" "$WORK/err.txt" || fail "$what: the error does not say '$text'" "$WORK/err.txt"
}
mkdir "$WORK/empty"
head -c 300 "$WORK/images/00000-"*.png > "$WORK/cut.png"
echo text > "$WORK/text.png"
use=(predict --backend cpu --checkpoint "$WORK/simplecnn")
refused "no image" "convoy predict needs image" "${use[@]}"
refused "a folder without images" "has no files that end in" "${use[@]}" "$WORK/empty"
refused "a missing file" "no.png cannot be read" "${use[@]}" "$WORK/no.png"
refused "a truncated image" "cut.png" "${use[@]}" "$WORK/cut.png"
refused "a text file" "neither a JPEG nor a PNG" "${use[@]}" "$WORK/text.png"
refused "no checkpoint" "$WORK/none" predict --checkpoint "$WORK/none" "$WORK/images"
ranks 2 "${use[@]}" "$WORK/images"
expect 2 "predict on two ranks"
pass "predict refuses what it cannot take"

strange=$(printf '%s/a\nb\033[31m.png' "$WORK")
cp "$(find "$WORK/images" -name '00000-*.png')" "$strange"
ranks 1 "${use[@]}" "$strange"
expect 0 "a file with control characters in its name"
{ [ "$(wc -l < "$WORK/out.txt")" = 2 ] && grep -qF 'a?b?[31m.png' "$WORK/out.txt"; } || fail "the name was printed as it is" "$WORK/out.txt"
bytes=$(printf '%s/a\xff\xe4b.png' "$WORK") # no UTF-8
cp "$(find "$WORK/images" -name '00000-*.png')" "$bytes"
ranks 1 "${use[@]}" --json "$bytes"
expect 0 "a file with a name that is no UTF-8"
"$CONVOY_PYTHON" -c 'import json, sys; json.loads(open(sys.argv[1], encoding="utf-8").read())' "$WORK/out.txt" || fail "no JSON" "$WORK/out.txt"
pass "a file's name can break neither the table nor JSON"

if modules PIL; then
  check resize "$WORK/images/00003-"*.png "$WORK/resized"
  for size in big small; do
    ranks 1 "${use[@]}" --json "$WORK/resized-$size.png"
    expect 0 "predict of a resized image"
    sed 's/.*"logits":\[\(.*\)\].*/\1/' "$WORK/out.txt" | tr , '\n' > "$WORK/$size.txt"
  done
  # pixels may be rounded the other way: at most one level of 255
  paste "$WORK/big.txt" "$WORK/small.txt" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 0.05) bad = 1 } END { exit bad || NR != 10 }' ||
    fail "an image is not resampled as Pillow does" "$WORK/big.txt" "$WORK/small.txt"
  pass "images of another size are resampled as Pillow does"
fi

# ---- export ----
for model in simplecnn resnet20; do
  export_to "$model" onnx
  export_to "$model" safetensors
done
refused "an unknown format" "expected one of: onnx, safetensors" export --checkpoint "$WORK/resnet20" --format onx --out "$WORK/x"
refused "no checkpoint" "$WORK/none" export --checkpoint "$WORK/none" --out "$WORK/x"
ranks 1 export --checkpoint "$WORK/resnet20" --out "$WORK/none/x.onnx"
expect 4 "a folder that is not there"
[ -e "$WORK/x" ] && fail "a refused export wrote something"
pass "export writes files and refuses what it cannot do"

# ---- import-weights ----
for model in simplecnn resnet20; do
  ranks 1 import-weights "$WORK/$model.safetensors" --out "$WORK/$model-back"
  expect 0 "import of $model's weights"
  "$(dirname "$CONVOY")/../tests/compare_arrays" "$WORK/$model-back"/step-*.h5 "$WORK/$model"/checkpoints/step-*.h5 \
    /parameters /statistics > "$WORK/out.txt" 2>&1 || fail "$model changed on the way" "$WORK/out.txt"
  ranks 1 predict --checkpoint "$WORK/$model-back" --backend cpu --json "$WORK/images"
  expect 0 "predict with $model's imported weights"
  diff "$WORK/out.txt" "$WORK/$model.json" > "$WORK/diff.txt" || fail "$model predicts differently" "$WORK/diff.txt"
done
pass "exported weights come back bit by bit"
refused "weights in place of a checkpoint" "convoy import-weights $WORK/simplecnn.safetensors --out DIR" \
  eval --data "$data" --checkpoint "$WORK/simplecnn.safetensors" --backend cpu
mkdir "$WORK/damaged"
check damage "$WORK/simplecnn.safetensors" "$WORK/damaged"
for file in "$WORK/damaged"/*; do
  refused "weights: $(basename "$file")" "error: " import-weights "$file" --out "$WORK/x"
done
head -c -4 "$WORK/simplecnn.safetensors" > "$WORK/nan.safetensors"
printf '\0\0\300\177' >> "$WORK/nan.safetensors"
refused "a weight that is no number" "is nan; expected finite" import-weights "$WORK/nan.safetensors" --out "$WORK/x"
LC_ALL=C sed 's/"std":"[0-9]/"std":"-/' "$WORK/simplecnn.safetensors" > "$WORK/std.safetensors"
refused "a negative std" "expected finite numbers above 0" import-weights "$WORK/std.safetensors" --out "$WORK/x"
refused "weights of another model" "holds\|has no\|expected" import-weights "$WORK/simplecnn.safetensors" --model resnet20 --out "$WORK/x"
[ -e "$WORK/x" ] && fail "a refused import wrote something"
pass "damaged weights are refused"

if modules onnx onnxruntime; then
  for model in simplecnn resnet20; do check onnx "$WORK/$model.onnx" "$shard" "$WORK/$model.json"; done
  many=$WORK/many
  set_of "$many" 10 10000
  mkdir "$WORK/many-images"
  check images "$many/test-00000-of-00001.h5" "$WORK/many-images"
  for model in simplecnn resnet20; do
    ranks 1 predict --checkpoint "$WORK/$model" --backend cpu --json --batch 500 "$WORK/many-images"
    expect 0 "predict of 10,000 images with $model"
    cp "$WORK/out.txt" "$WORK/many.json"
    [ "$(wc -l < "$WORK/many.json")" = 10000 ] || fail "not one line an image"
    check onnx "$WORK/$model.onnx" "$many/test-00000-of-00001.h5" "$WORK/many.json"
    grep "batch 500" "$WORK/out.txt"
  done
  rm -r "$WORK/many-images"
  pass "ONNX Runtime computes the same from the exported models, for 10,000 images"
fi
if modules safetensors; then
  for model in simplecnn resnet20; do
    check safetensors "$WORK/$model.safetensors" "$(ls "$WORK/$model"/checkpoints/step-*.h5)"
  done
  pass "safetensors reads the arrays of the checkpoint"
fi
