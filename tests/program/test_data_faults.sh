#!/usr/bin/env bash
# Faulty shards: each fault is named in one line before the first step, exit 2, nothing written, on one rank and on
# four; `convoy data check` names all faults of a folder. Good variants: the same losses as the plain set.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

make_shards=$(dirname "$CONVOY")/../tests/make_shards
make() { "$make_shards" "$@" || fail "make_shards $*"; }

data=$WORK/data out=$WORK/run
"$CONVOY" data synth "$data" --train 90 --test 20 --shards 3 --size 16 > "$WORK/synth.txt" 2>&1 || fail "synth" "$WORK/synth.txt"
second=train-00001-of-00003.h5

train() { # train RANKS DIR OPTION...
  local count=$1 from=$2
  shift 2
  ranks "$count" train --data "$from" --out "$out" --backend cpu --threads 1 --batch 20 --epochs 1 --log-every 1 "$@"
}

# fault NAME PATTERN: the folder $WORK/NAME is refused with the pattern in the line; it is kept for `data check`.
fault() {
  local count
  : > "$WORK/said.txt"
  for count in 1 4; do
    train "$count" "$WORK/$1"
    expect 2 "$1, np $count"
    one_error "$1, np $count"
    grep '^error: ' "$WORK/err.txt" | grep -qe "$2" || fail "$1, np $count: no '$2' in the error" "$WORK/err.txt"
    [ -e "$out" ] && fail "$1, np $count: something was written"
    grep '^error: ' "$WORK/err.txt" >> "$WORK/said.txt"
  done
  [ "$(sort -u "$WORK/said.txt" | wc -l)" = 1 ] || fail "$1: not the same line on 1 and 4 ranks" "$WORK/said.txt"
  said=$(sed -n "s,^error: $WORK/,,p" "$WORK/err.txt")
  ranks 1 data check "$WORK/$1"
  expect 2 "data check of $1"
  grep -qe "$2" "$WORK/out.txt" || fail "data check of $1: no '$2'" "$WORK/out.txt" "$WORK/err.txt"
  pass "$said"
}

copy() { rm -rf "${WORK:?}/$1" && cp -r "$data" "$WORK/$1"; }
# bad NAME PATTERN WORD...: the second shard, rewritten with make_shards WORD..., is at fault.
bad() {
  local name=$1 pattern=$2
  shift 2
  copy "$name"
  make "$data/$second" "$WORK/$name/$second" "$@"
  fault "$name" "$second.*$pattern"
}

copy truncated
truncate -s -1 "$WORK/truncated/$second"
size=$(stat -c %s "$data/$second")
fault truncated "$second is truncated: $((size - 1)) of $size bytes"
copy empty
: > "$WORK/empty/$second"
fault empty "$second is empty"
copy text
echo "hello" > "$WORK/text/$second"
fault text "$second is not an HDF5 file"
copy folder
rm "$WORK/folder/$second"
mkdir "$WORK/folder/$second"
fault folder "$second is a folder"
copy missing
rm "$WORK/missing/$second"
fault missing "$second is missing"
copy flipped
printf '\377' | dd of="$WORK/flipped/$second" bs=1 seek=5000 conv=notrunc status=none
printf '\001' | dd of="$WORK/flipped/$second" bs=1 seek=5001 conv=notrunc status=none
fault flipped "$second: its images or labels are damaged"
copy zeroed
dd if=/dev/zero of="$WORK/zeroed/$second" bs=512 seek=10 count=8 conv=notrunc status=none
fault zeroed "$second: its images or labels are damaged"
bad name "no data set 'images' (found: 'data', 'labels')" images=data
bad labels-name "no data set 'labels' (found: 'images', 'y')" labels-name=y
bad group "'images' is a group, expected a data set" group
bad flat "shape (30,768), expected (N,H,W,C)" flat
bad float "'images' is float32, expected uint8" float
bad int16 "'images' is int16, expected uint8" int16
bad short "30 images but 29 labels" short-labels
bad size "images of 15x16x3 (H,W,C), expected 16x16x3" crop
bad label "row 29: label 10, expected 0..9" label=29:10
bad label-negative "row 7: label -1, expected 0..9" labels=i32 label=7:-1
bad classes "11 classes, expected 10" classes=11
copy few-classes
for shard in "$data"/*.h5; do make "$shard" "$WORK/few-classes/${shard##*/}" classes=5; done
fault few-classes "train-.*row [0-9]*: label [5-9], expected 0..4"
mkdir "$WORK/nothing"
ranks 1 data info "$WORK/nothing"
expect 2 "data info of a folder without shards"
one_error "data info of a folder without shards"
bad filter "filter 32111 (strange).*HDF5_PLUGIN_PATH" chunk=8 filter

# Metadata on which HDF5 1.10 crashes or turns for ever: the first name's size in the heap of class names.
heap() { # heap NAME BYTE OCTAL: the heap's byte, in the second shard
  copy "$1"
  make "$data/$second" "$WORK/$1/$second" names
  local at
  at=$(LC_ALL=C grep -abo GCOL "$WORK/$1/$second" | head -1 | cut -d: -f1)
  [ -n "$at" ] || fail "no heap"
  # shellcheck disable=SC2059
  printf "\\$3" | dd of="$WORK/$1/$second" bs=1 seek=$((at + $2)) conv=notrunc status=none
  fault "$1" "$second.*copy"
}
heap crash 30 377
heap endless 24 377

# A lock that another holds: no obstacle, unless the user asks for locking.
copy locked
exec 9< "$WORK/locked/$second"
flock -x 9 || fail "no lock"
for count in 1 4; do
  train "$count" "$WORK/locked" --check 9<&-
  expect 0 "a locked shard, np $count"
done
pass "a lock that another process holds does not stop a reader"
export HDF5_USE_FILE_LOCKING=TRUE
fault locked "$second: file locking refused.*HDF5_USE_FILE_LOCKING=FALSE"
unset HDF5_USE_FILE_LOCKING
exec 9<&-

# All faults of one folder, several of them in one file.
all=$WORK/all
"$CONVOY" data synth "$all" --train 90 --test 20 --shards 9 --size 16 > "$WORK/synth.txt" 2>&1
shard() { echo "$all/train-0000$1-of-00009.h5"; }
truncate -s -1 "$(shard 0)"
: > "$(shard 1)"
rm "$(shard 2)"
printf '\377\001' | dd of="$(shard 3)" bs=1 seek=3000 conv=notrunc status=none
make "$data/$second" "$(shard 4)" label=3:77
make "$data/$second" "$(shard 5)" float short-labels
make "$data/$second" "$(shard 6)" crop classes=12
make "$data/$second" "$(shard 7)" group labels-name=y
ranks 1 data check "$all"
expect 2 "all faults"
one_error "all faults"
[ "$(grep -c '^fault: ' "$WORK/out.txt")" = 11 ] || fail "not 11 faults" "$WORK/out.txt"
for pattern in 00000.*truncated 00001.*empty 00002.*missing 00003.*damaged "00004.*row 3: label 77" 00005.*float32 \
  "00005.*29 labels" 00006.*15x16x3 "00006.*12 classes" "00007.*a group" "00007.*no data set 'labels'"; do
  grep -qe "$pattern" "$WORK/out.txt" || fail "data check of all: no '$pattern'" "$WORK/out.txt"
done
ranks 4 data check "$all"
expect 2 "all faults, np 4"
[ "$(grep -c '^fault: ' "$WORK/out.txt")" = 11 ] || fail "np 4: not 11 faults" "$WORK/out.txt"
ranks 1 data check "$data"
expect 0 "a good folder"
pass "data check names all 11 faults of a folder"

# A shard under the name of another is told: its images count twice, the other's not at all.
copy twin
cp "$WORK/twin/$second" "$WORK/twin/train-00002-of-00003.h5"
for command in "data check" "data info"; do
  # shellcheck disable=SC2086
  ranks 1 $command "$WORK/twin"
  expect 0 "$command of a folder with a shard twice"
  [ "$(grep -c '^warning: .*/twin/train.* and .*/twin/train.* hold the same images' "$WORK/err.txt")" = 1 ] ||
    fail "$command does not warn of a shard that is there twice" "$WORK/err.txt"
done
pass "a shard that is there twice is told"
