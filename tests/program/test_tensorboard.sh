#!/usr/bin/env bash
# convoy train --tensorboard: event files that TensorBoard's own reader, and TensorBoard itself, read back as what the
# logs say, also after a kill and a resume; other files in the folder; a file that cannot be written.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
here=$(dirname "$0")
modules h5py PIL tensorboard || exit 77
check() {
  "$CONVOY_PYTHON" "$here/tensorboard_check.py" "$@" > "$WORK/check.txt" 2>&1 || fail "tensorboard_check.py $1" "$WORK/check.txt"
}
data=$WORK/data board=$WORK/boards/a
set_of "$data" 384 100
check names "$data"
train() { # RANKS OPTION...
  local count=$1
  shift
  ranks "$count" train --data "$data" --backend cpu --threads 1 --deterministic --batch 64 --log-every 1 --epochs 2 "$@"
}
files() { find "$board" -type f | wc -l; }

train 2 --out "$WORK/a" --tensorboard "$board"
expect 0 "a run with --tensorboard"
[ "$(files)" = 1 ] || fail "not one event file: $(ls "$board")"
check scalars "$board" "$WORK/a"
check text "$board" "$WORK/a" 1
check served "$board" "$WORK/a"
pass "TensorBoard and its reader find the values of the logs, as floats, at their steps"

check examples "$board" "$data/test-00000-of-00001.h5" "$WORK/images"
ranks 1 predict --checkpoint "$WORK/a" --backend cpu --json "$WORK/images"
expect 0 "predict of the example images"
sed -n 's/.*\/\([0-9]*\).png","class":"\([^"]*\)",.*"probability":\([^,]*\),.*/\1;\2;\3/p' "$WORK/out.txt" > "$WORK/predicted.txt"
paste -d';' "$WORK/predicted.txt" "$WORK/images/table.txt" | awk -F';' '{ d = $3 - $6; if ($1 != $4 || $2 != $5 || d > 1e-4 || d < -1e-4) exit 1 } END { exit NR != 25 }' ||
  fail "the predictions are not those of convoy predict" "$WORK/predicted.txt" "$WORK/images/table.txt"
pass "example images and predictions"

# A run that went on after its checkpoint, and lost its last words.
board=$WORK/boards/b
train 1 --out "$WORK/b" --tensorboard "$board" --steps 5 --checkpoint-every 3
expect 0 "the first part"
rm "$WORK/b/checkpoints/step-00000005.h5"
file=$(find "$board" -type f)
truncate -s -5 "$file"
train 2 --out "$WORK/b" --tensorboard "$board" --resume
expect 0 "the second part"
[ "$(files)" = 2 ] || fail "not two event files: $(ls "$board")"
[ "$(tail -n +2 "$WORK/b/loss.csv" | wc -l)" = 12 ] || fail "loss.csv has not 12 rows" "$WORK/b/loss.csv"
check scalars "$board" "$WORK/b"
check first "$board" 4
check text "$board" "$WORK/b" 2
check served "$board" "$WORK/b"
train 2 --out "$WORK/b" --tensorboard "$board" --resume
expect 0 "a complete run"
[ "$(files)" = 2 ] || fail "a complete run writes an event file"
pass "after a resume each step counts once, none is lost"

refused() { # CODE TEXT OPTION...
  local wanted=$1 text=$2
  shift 2
  train 1 --out "$WORK/c" "$@"
  expect "$wanted" "$text"
  one_error "$text"
  grep -q -- "$text" "$WORK/err.txt" || fail "the error does not say '$text'" "$WORK/err.txt"
  [ -e "$WORK/c/loss.csv" ] && fail "it trained nevertheless"
}
refused 2 "give each run a folder of its own" --tensorboard "$board"
refused 2 "give each run a folder of its own" --tensorboard "$board" --check
touch "$WORK/file"
refused 2 "Not a directory" --tensorboard "$WORK/file/x"
refused 4 "cannot make the folder" --tensorboard /proc/self/none/x
pass "refused before step 1: another run's folder, one that cannot be made"

echo other > "$board/notes.txt"
train 1 --out "$WORK/b" --tensorboard "$board" --overwrite
expect 0 "a new run in place of another"
{ [ "$(files)" = 2 ] && [ -e "$board/notes.txt" ]; } || fail "--overwrite removed the wrong files: $(ls "$board")"
check scalars "$board" "$WORK/b"
pass "--overwrite removes a former run's event files and no others"

board=$WORK/boards/d
ranks 1 train --data "$data" --out "$WORK/d" --backend cpu --lr 1e30 --batch 64 --log-every 1 --tensorboard "$board"
expect 3 "a run whose loss is not finite"
check scalars "$board" "$WORK/d"
pass "a value that is not finite is left out"

# Storage that fails once it trains: told once, and the run has the same end; the file's other records stay readable.
shim=$(dirname "$CONVOY")/../tests/fail_write.so
if plain "calls that fail, which are preloaded"; then
  # fails_with ERRNO RANKS NAME: trains to its end although the 9th call on its board fails.
  fails_with() {
    board=$WORK/boards/$3
    export FAIL_UNDER=$board FAIL_ERRNO=$1 FAIL_AT=9 LD_PRELOAD="$shim"
    train "$2" --out "$WORK/$3" --tensorboard "$board"
    unset LD_PRELOAD FAIL_UNDER FAIL_ERRNO FAIL_AT
    expect 0 "$2 ranks whose board fails with $1"
  }
  fails_with ENOSPC 1 e
  [ "$(grep -c '^warning: cannot write .*tfevents.*; the run goes on' "$WORK/err.txt")" = 1 ] || fail "not told once" "$WORK/err.txt"
  train 1 --out "$WORK/whole"
  expect 0 "a run without --tensorboard"
  diff <(no_times "$WORK/whole/loss.csv") <(no_times "$WORK/e/loss.csv") > "$WORK/diff.txt" || fail "loss.csv differs" "$WORK/diff.txt"
  train 1 --out "$WORK/e" --tensorboard "$board" --epochs 3 --resume
  expect 0 "a longer run"
  "$CONVOY_PYTHON" - "$board" "$here" > "$WORK/check.txt" 2>&1 << 'PYTHON' || fail "the cut file" "$WORK/check.txt"
import sys
board, here = sys.argv[1:]
sys.path.insert(0, here)
import tensorboard_check as check
steps = [e.step for e in check.accumulated(board).Scalars("train/loss")]
print(steps)
assert steps == [1, 2, 3, 4] + list(range(13, 19))
PYTHON
  pass "a file that cannot be written any more is told once, and what is in it stays readable"

  fails_with ENOMEM 2 f
  [ "$(grep -c '^warning: no examples for TensorBoard: ' "$WORK/err.txt")" = 1 ] || fail "not told once" "$WORK/err.txt"
  grep -q '"status":[[:space:]]*"complete"' "$WORK/f/run.json" || fail "a finished run is not recorded as complete" "$WORK/f/run.json"
  pass "a finished run is complete, also without its example images"
fi
