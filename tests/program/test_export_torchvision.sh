#!/usr/bin/env bash
# Weights of resnet18 to torchvision and back. torchvision is heavy and not fetched for the tests: without it the suite counts
# as skipped (Debian: python3-torchvision).
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
modules torchvision safetensors h5py || exit 77
here=$(dirname "$0")
check() { "$CONVOY_PYTHON" "$here/export_check.py" "$@" > "$WORK/out.txt" 2>&1 || fail "export_check.py $1" "$WORK/out.txt"; }
good() { # ARGUMENT...
  ranks 1 "$@"
  expect 0 "$*"
}

data=$WORK/data
set_of "$data" 384 150
shard=$data/test-00000-of-00001.h5
mkdir "$WORK/images"
check images "$shard" "$WORK/images"
good train --data "$data" --out "$WORK/resnet18" --model resnet18 --backend cpu --steps 2 --batch 16
good predict --checkpoint "$WORK/resnet18" --backend cpu --json "$WORK/images"
cp "$WORK/out.txt" "$WORK/resnet18.json"
good export --checkpoint "$WORK/resnet18" --format safetensors --out "$WORK/resnet18.safetensors"
check torch "$WORK/resnet18.safetensors" "$shard" "$WORK/resnet18.json"
pass "torchvision's resnet18 loads the export with strict=True and computes the same"

check make "$WORK/made.safetensors" "$shard" "$WORK/made.json"
ranks 1 import-weights "$WORK/made.safetensors" --model resnet18 --out "$WORK/made"
expect 2 "no normalisation"
one_error "no normalisation"
grep -q "give --mean" "$WORK/err.txt" || fail "no normalisation: the error does not ask for --mean" "$WORK/err.txt"
good import-weights "$WORK/made.safetensors" --model resnet18 --mean 0.5 --std 0.25 --out "$WORK/made"
good predict --checkpoint "$WORK/made" --backend cpu --json "$WORK/images"
cp "$WORK/out.txt" "$WORK/made-here.json"
check same "$WORK/made-here.json" "$WORK/made.json"
pass "weights that torchvision made compute the same here"
