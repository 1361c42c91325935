#!/usr/bin/env bash
# Storage that fails at any write: exit 4, one line with the path, what was there stays good, and a resumed run has the
# result of an undisturbed one.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

data=$WORK/data
set_of "$data" 128 32 # batch 32: 4 steps an epoch
run() { # OUT OPTION...
  local out=$1
  shift
  ranks 1 train --data "$data" --out "$out" --backend cpu --threads 1 --deterministic --batch 32 --epochs 3 \
    --checkpoint-every 2 --log-every 2 --keep 2 "$@"
}
run "$WORK/whole"
expect 0 "the undisturbed run"
run "$WORK/start" --steps 6
expect 0 "the first half"

# same_end OUT WHAT: resumed without faults, OUT ends as the undisturbed run did.
same_end() {
  run "$1" --resume
  [ "$code" = 0 ] || fail "$2: the resumed run: exit code $code" "$WORK/err.txt"
  diff <(no_times "$WORK/whole/loss.csv") <(no_times "$1/loss.csv") > "$WORK/diff.txt" || fail "$2: loss.csv differs" "$WORK/diff.txt"
  diff <(cut -d, -f1-6 "$WORK/whole/epochs.csv") <(cut -d, -f1-6 "$1/epochs.csv") > "$WORK/diff.txt" || fail "$2: epochs.csv differs" "$WORK/diff.txt"
  same_arrays "$WORK/whole/checkpoints/step-00000012.h5" "$1/checkpoints/step-00000012.h5" > "$WORK/diff.txt" 2>&1 || fail "$2: the weights differ" "$WORK/diff.txt"
}

# only_good OUT WHAT: every checkpoint under a final name is whole.
only_good() {
  local file bytes
  for file in "$1"/checkpoints/*.h5; do
    bytes=$(sed -n '2s/^bytes 0*//p;2q' "$file")
    [ "$(stat -c %s "$file")" = "$bytes" ] || fail "$2: $file is short"
  done
}

shim=$(dirname "$CONVOY")/../tests/fail_write.so
if plain "calls that fail, which are preloaded"; then
  shim=$(readlink -f "$shim")
  # Each call for the usual two, some for others of their kind.
  for faults in KILL:3 EIO:1 ENOSPC:1 EDQUOT:7 EROFS:11; do
    errno=${faults%:*} each=${faults#*:} failed=0 survived=0
    for at in $(seq 1 "$each" 300); do
      out=$WORK/$errno-$at
      cp -r "$WORK/start" "$out"
      rm -f "$WORK/report"
      export FAIL_UNDER=$out FAIL_ERRNO=$errno FAIL_AT=$at FAIL_REPORT=$WORK/report LD_PRELOAD=$shim
      run "$out" --resume 2> /dev/null # the shell tells of kills
      unset LD_PRELOAD FAIL_UNDER FAIL_ERRNO FAIL_AT FAIL_REPORT
      what="$errno at call $at"
      if [ ! -f "$WORK/report" ]; then
        expect 0 "$what, which never came"
        break
      fi
      if [ "$errno" = KILL ]; then
        expect 137 "$what"
        failed=$((failed + 1))
      elif [ "$code" = 0 ]; then
        survived=$((survived + 1)) # what does not matter, such as a link that becomes a copy
      else
        expect 4 "$what"
        one_error "$what"
        [ "$errno" != EDQUOT ] || grep -q '^error: .*quota' "$WORK/err.txt" || fail "$what: not said to be the quota" "$WORK/err.txt"
        grep '^error: ' "$WORK/err.txt" | grep -q "$out" || fail "$what: the path is not named" "$WORK/err.txt"
        failed=$((failed + 1))
      fi
      only_good "$out" "$what"
      if [ $((at % 2)) = 1 ] || [ "$errno" = KILL ]; then same_end "$out" "$what"; fi
      rm -r "$out"
    done
    [ -f "$WORK/report" ] && fail "$errno: more than $at calls"
    [ $failed -ge $((20 / each + 1)) ] || fail "$errno: only $failed failures ended the run"
    pass "$errno at calls 1, $((1 + each)), … $((at - each)): the run ends at $failed, no harm at $survived; resumed bit for bit"
  done

  # A save that fails beside the steps of two ranks: all stop after the same one.
  out=$WORK/beside
  cp -r "$WORK/start" "$out"
  code=0
  mpirun --oversubscribe --bind-to none -np 2 -x LD_PRELOAD="$shim" -x FAIL_UNDER="$out/checkpoints" -x FAIL_ERRNO=ENOSPC \
    -x FAIL_AT=3 "$CONVOY" train --data "$data" --out "$out" --backend cpu --threads 1 --deterministic --batch 32 --epochs 60 \
    --checkpoint-every 2 --log-every 2 --keep 2 --eval-every 0 --resume > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  expect 4 "a save that fails beside the steps"
  one_error "a save that fails beside the steps"
  only_good "$out" "a save that fails beside the steps"
  same_end "$out" "a save that fails beside the steps"
  pass "a save that fails beside the steps of two ranks: exit 4, one line, resumed bit for bit"
fi

# Where the end of a failed run cannot be told to its files, the error line is still that of the failure.
if plain "calls that fail, which are preloaded"; then
  mkdir "$WORK/metrics"
  for file in run.json metrics; do
    out=$WORK/told-$file
    export FAIL_UNDER=$out/run.json FAIL_ERRNO=EROFS FAIL_AT=6 FAIL_REPORT=$WORK/report LD_PRELOAD=$shim
    [ $file = run.json ] || export FAIL_UNDER=$WORK/metrics FAIL_AT=2
    rm -f "$WORK/report"
    run "$out" --lr 1e30 --optimizer sgd --metrics "$WORK/metrics/run.prom"
    unset LD_PRELOAD FAIL_UNDER FAIL_ERRNO FAIL_AT FAIL_REPORT
    [ -f "$WORK/report" ] || fail "$file: no call failed"
    expect 3 "a loss that is not finite, and no more writes to $file"
    one_error "a loss that is not finite, and no more writes to $file"
    grep -q '^error: the loss is not finite at step' "$WORK/err.txt" || fail "$file: another error" "$WORK/err.txt"
  done
  pass "a failed run whose end cannot be written down: its own error is told"
fi

# A folder that cannot be listed is not taken for an empty one.
if plain "folders that cannot be listed, by a preloaded function"; then
  unlisted() { # FOLDER ARGUMENT...: where FOLDER cannot be listed
    export FAIL_FOLDER=$1 LD_PRELOAD=${shim%/*}/fail_list.so
    shift
    ranks 1 "$@"
    unset FAIL_FOLDER LD_PRELOAD
  }
  out=$WORK/unlisted
  cp -r "$WORK/start" "$out"
  for folder in "$out" "$out/checkpoints"; do
    unlisted "$folder" train --data "$data" --out "$out" --backend cpu --threads 1 --batch 32 --epochs 3 --resume
    expect 4 "--resume where $folder cannot be listed"
    unlisted "$folder" train --data "$data" --out "$out" --backend cpu --threads 1 --batch 32 --epochs 3
    [ "$code" != 0 ] || fail "a new run where $folder cannot be listed: exit code 0" "$WORK/out.txt"
    one_error "a run where $folder cannot be listed"
    diff -r "$WORK/start" "$out" > "$WORK/diff.txt" || fail "a run where $folder cannot be listed changes it" "$WORK/diff.txt"
  done
  mkdir "$WORK/events" "$WORK/set"
  echo kept > "$WORK/events/events.out.tfevents.1"
  unlisted "$WORK/events" train --data "$data" --out "$WORK/new" --tensorboard "$WORK/events" --backend cpu --steps 1
  expect 4 "--tensorboard where the folder cannot be listed"
  cp "$data"/*.h5 "$WORK/set"
  unlisted "$WORK/set" data synth "$WORK/set" --train 10 --test 0
  [ "$code" != 0 ] || fail "shards where the folder cannot be listed: exit code 0" "$WORK/out.txt"
  diff -r "$data" "$WORK/set" > "$WORK/diff.txt" || fail "shards where the folder cannot be listed take the place of others" "$WORK/diff.txt"
  pass "folders that cannot be listed: nothing in them is touched"
fi

# A log on a full device; a limit on file sizes, which must not kill by SIGXFSZ.
mkdir "$WORK/full"
ln -s /dev/full "$WORK/full/loss.csv"
run "$WORK/full" --resume
expect 4 "loss.csv on /dev/full"
one_error "loss.csv on /dev/full"
grep -q "^error: .*loss.csv.*No space" "$WORK/err.txt" || fail "loss.csv on /dev/full: the error" "$WORK/err.txt"
pass "loss.csv on /dev/full: exit 4"
for blocks in 1 100 700; do
  out=$WORK/limit-$blocks
  cp -r "$WORK/start" "$out"
  code=0
  (
    ulimit -f "$blocks"
    exec "$CONVOY" train --data "$data" --out "$out" --backend cpu --threads 1 --deterministic --batch 32 --epochs 3 \
      --checkpoint-every 2 --log-every 2 --keep 2 --resume
  ) > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  expect 4 "ulimit -f $blocks"
  one_error "ulimit -f $blocks"
  grep -Eq "^error: .*step-[0-9]*.h5.*needed [0-9]+ bytes, free [0-9]+" "$WORK/err.txt" || fail "ulimit -f: the error" "$WORK/err.txt"
  diff -r "$WORK/start" "$out" > "$WORK/diff.txt" || fail "ulimit -f $blocks: not refused before step 1" "$WORK/diff.txt"
  only_good "$out" "ulimit -f $blocks"
  same_end "$out" "ulimit -f $blocks"
  pass "ulimit -f $blocks: exit 4, need and free named, resumed bit for bit"
done

# Small and read-only file systems, mounted where only a child sees them.
works "small and read-only file systems" unshare -rm mount -t tmpfs none /mnt || exit 77
in_mount() { # MOUNT-OPTIONS SCRIPT: with a tmpfs on $WORK/mount
  mkdir -p "$WORK/mount"
  code=0
  CONVOY=$CONVOY WORK=$WORK data=$data unshare -rm bash -c "
    train() { \"\$CONVOY\" train --data \"\$data\" --backend cpu --threads 1 --batch 32 --epochs 3 \"\$@\"; }
    mount -t tmpfs -o '$1' none \"\$WORK/mount\" || exit 99
    $2" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
}
# shellcheck disable=SC2016
in_mount size=1500k 'train --out "$WORK/mount/run"; code=$?; ls "$WORK/mount/run" && exit 98; exit $code'
expect 4 "too little space for two checkpoints"
one_error "too little space"
grep -Eq "^error: .*[0-9.]+ MB free.* need [0-9.]+ MB" "$WORK/err.txt" || fail "too little space: the error" "$WORK/err.txt"
pass "too little space for two checkpoints: refused before step 1, nothing left behind"
# shellcheck disable=SC2016
in_mount size=4m 'mkdir -p "$WORK/mount/run/checkpoints"
  mount -t tmpfs -o ro none "$WORK/mount/run/checkpoints"
  train --out "$WORK/mount/run"; code=$?
  ls "$WORK/mount/run"/*.csv && exit 98; exit $code'
expect 4 "a folder of checkpoints that cannot be written"
one_error "a folder of checkpoints that cannot be written"
pass "a folder of checkpoints that cannot be written: refused before step 1"
# shellcheck disable=SC2016
in_mount size=4m 'train --out "$WORK/mount/run" --keep 0 --checkpoint-every 1; code=$?
  [ "$(ls "$WORK"/mount/run/checkpoints/*.tmp 2> /dev/null)" ] && exit 97
  rm "$WORK"/mount/run/checkpoints/step-0000000[12].h5
  train --out "$WORK/mount/run" --keep 1 --resume --quiet || exit 96
  exit $code'
expect 4 "a disk that fills up"
one_error "a disk that fills up"
pass "a disk that fills up: exit 4, no temporary left, the run resumes"
# shellcheck disable=SC2016
in_mount size=4m 'mkdir "$WORK/mount/run"; mount -o remount,ro none "$WORK/mount"; train --out "$WORK/mount/run"'
expect 4 "a read-only folder"
one_error "a read-only folder"
grep -q "^error: .*Read-only.*this user may write" "$WORK/err.txt" || fail "a read-only folder: the error" "$WORK/err.txt"
pass "a read-only folder: exit 4"
