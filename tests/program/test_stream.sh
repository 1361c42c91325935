#!/usr/bin/env bash
# A set above --memory-limit is streamed: the same losses, bit for bit, as the same order in memory, at any ranks, through
# shards of any size and layout, across a resume; each row is read once an epoch; what cannot be streamed is refused.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

make_shards=$(dirname "$CONVOY")/../tests/make_shards
data=$WORK/data
# 16x16: blocks of 1365 rows, all of them in one window; 64x64 below has windows of its own.
"$CONVOY" data synth "$data" --train 1500 --test 60 --shards 5 --size 16 > "$WORK/synth.txt" 2>&1 || fail "synth" "$WORK/synth.txt"

options=(--backend cpu --threads 1 --deterministic --epochs 2 --batch 50 --log-every 1 --augment "flip,crop")
train() { # train RANKS DIR OUT OPTION...
  local count=$1 from=$2 to=$3
  shift 3
  ranks "$count" train --data "$from" --out "$to" "${options[@]}" "$@"
  expect 0 "train $from $*, np $count"
}
same() { # same WHAT OUT OUT: loss.csv and epochs.csv without times
  diff <(no_times "$2/loss.csv") <(no_times "$3/loss.csv") > "$WORK/diff" || fail "$1: other losses" "$WORK/diff"
  diff <(cut -d, -f1-6 "$2/epochs.csv") <(cut -d, -f1-6 "$3/epochs.csv") || fail "$1: other results"
}

train 1 "$data" "$WORK/full"
for count in 1 4; do
  train $count "$data" "$WORK/memory-$count" --shuffle chunk
  grep -q 'memory-limit' "$WORK/out.txt" && fail "np $count: streamed without need" "$WORK/out.txt"
  train $count "$data" "$WORK/stream-$count" --memory-limit 0.5
  grep -q 'more than --memory-limit: --shuffle chunk' "$WORK/out.txt" || fail "np $count: not streamed" "$WORK/out.txt"
  same "streamed, np $count" "$WORK/memory-$count" "$WORK/stream-$count"
done
close_losses "$WORK/memory-1/loss.csv" "$WORK/stream-4/loss.csv" 1e-4 || fail "1 and 4 ranks differ"
close_losses "$WORK/full/loss.csv" "$WORK/stream-1/loss.csv" 1e-3 > /dev/null && fail "--shuffle chunk changes nothing"
pass "streamed and in memory: the same losses at 1 and 4 ranks"

train 2 "$data" "$WORK/lanes-2" --memory-limit 0.5 --lanes 4
train 4 "$data" "$WORK/lanes-4" --shuffle chunk --lanes 4
same "lanes" "$WORK/lanes-2" "$WORK/lanes-4"
pass "with --lanes: streamed on 2 ranks as in memory on 4"

train 2 "$data" "$WORK/resumed" --memory-limit 0.5 --steps 17
ranks 2 train --data "$data" --out "$WORK/resumed" "${options[@]}" --resume
expect 2 "an epoch that goes on in another order"
one_error "an epoch that goes on in another order"
grep -q 'shuffle is full, .*step-00000017.h5 .* give --shuffle chunk$' "$WORK/err.txt" || fail "the order is not named" "$WORK/err.txt"
train 2 "$data" "$WORK/resumed" --memory-limit 0.5 --resume
train 2 "$data" "$WORK/whole" --memory-limit 0.5
same "resumed in the middle of an epoch" "$WORK/whole" "$WORK/resumed"
train 2 "$data" "$WORK/changed" --steps 30
train 2 "$data" "$WORK/changed" --memory-limit 0.5 --resume
grep -q '^warning: resuming with shuffle chunk' "$WORK/err.txt" || fail "an order that changes between epochs is not told" "$WORK/err.txt"
pass "resumed in the middle of an epoch"

# The same rows in shards of 400, 0, 1 and 1099 rows, some N,C,H,W, with wide labels.
"$CONVOY" data synth "$WORK/one" --train 1500 --test 60 --shards 1 --size 16 > /dev/null || fail "synth"
mkdir "$WORK/uneven"
cp "$WORK/one"/test-* "$WORK/uneven"
at=0 number=0
for rows in 400 0 1 1099; do
  words=(attributes)
  [ $rows != 1099 ] || words=(nchw labels=i64be)
  "$make_shards" "$WORK/one/train-00000-of-00001.h5" "$WORK/uneven/train-$number.h5" "rows=$at:$rows" "${words[@]/attributes/classes=10}" ||
    fail "make_shards"
  at=$((at + rows)) number=$((number + 1))
done
train 1 "$WORK/uneven" "$WORK/uneven-run" --memory-limit 0.5
same "uneven shards" "$WORK/memory-1" "$WORK/uneven-run"
pass "shards of 400, 0, 1 and 1099 rows, N,C,H,W too"

# Several windows, larger images; each row once an epoch.
"$CONVOY" data synth "$WORK/large" --train 6200 --test 10 --shards 3 --size 64 > /dev/null || fail "synth"
large() {
  ranks "$1" train --data "$WORK/large" --out "$2" --backend cpu --threads 1 --deterministic --epochs 1 --batch 400 \
    --log-every 1 --steps 13 "${@:3}"
  expect 0 "large ${*:3}"
}
large 2 "$WORK/large-memory" --shuffle chunk
large 2 "$WORK/large-stream" --memory-limit 1
same "several windows" "$WORK/large-memory" "$WORK/large-stream"
pass "76 MB in two windows"

# What does not train keeps no training image: its peak of memory does not grow with them.
if [ -x /usr/bin/time ]; then
  peak() { # peak DATA COMMAND...: kB
    local from=$1
    shift
    /usr/bin/time -o "$WORK/peak" -f %M "$CONVOY" "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" ||
      fail "$* of $from" "$WORK/out.txt" "$WORK/err.txt"
    tail -1 "$WORK/peak"
  }
  checkpoint=$WORK/small-run/checkpoints/best.h5
  "$CONVOY" data synth "$WORK/small" --train 40 --test 10 --shards 1 --size 64 > /dev/null || fail "synth"
  ranks 1 train --data "$WORK/small" --out "$WORK/small-run" --backend cpu --threads 1 --epochs 1 --batch 20
  expect 0 "train small"
  for what in "data info SET" "check --data SET" "eval --data SET --backend cpu --threads 1 --checkpoint $checkpoint"; do
    # shellcheck disable=SC2086
    small=$(peak small ${what/SET/$WORK/small}) && large=$(peak large ${what/SET/$WORK/large}) || exit 1
    [ $((large - small)) -lt 30000 ] || fail "${what%% SET*}: $large kB for 76 MB of images, $small kB for 0.5 MB"
  done
  pass "info, check and eval keep no training image: $large kB, $small kB for a small set"
fi

# Chunked rows cannot be read by place.
mkdir "$WORK/chunked"
"$make_shards" "$WORK/one/train-00000-of-00001.h5" "$WORK/chunked/train-0.h5" chunk=100 deflate || fail "make_shards"
for count in 1 4; do
  ranks $count train --data "$WORK/chunked" --out "$WORK/no" --backend cpu --memory-limit 0.5
  expect 2 "chunked"
  one_error "chunked"
  grep -q 'train-0.h5.*convoy data import --from .* --rechunk$' "$WORK/err.txt" || fail "chunked: no advice" "$WORK/err.txt"
  [ -e "$WORK/no" ] && fail "something was written"
done
pass "chunked shards above the limit are refused with the cure"

# A container or Slurm gives less memory than the host has: the limit stands in both versions' files.
works "a limit of memory" unshare -rm mount -t tmpfs none /sys/fs/cgroup || exit 77
code=0
# shellcheck disable=SC2016 # the inner shell expands
unshare -rm bash -c 'mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory &&
  echo 2097152 | tee /sys/fs/cgroup/memory.max > /sys/fs/cgroup/memory/memory.limit_in_bytes && exec "$@"' - \
  "$CONVOY" train --data "$WORK/chunked" --out "$WORK/no" --backend cpu > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "a limit of memory"
grep -q 'exceed the memory limit of 1.0 MiB' "$WORK/err.txt" || fail "a limit of memory: the error" "$WORK/err.txt"
pass "half of what a container may have is the limit"
