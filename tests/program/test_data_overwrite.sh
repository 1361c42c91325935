#!/usr/bin/env bash
# `--overwrite` never leaves a folder without one whole set of shards: the program is killed before each call that renames
# or removes, and its writes fail; other files of the folder stay.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # leaks cannot be looked for under strace
fail_write=$(dirname "$CONVOY")/../tests/fail_write.so
set=$WORK/set out=$WORK/set/data
synth() { "$CONVOY" data synth "$out" --test 5 --size 8 "$@"; }
fresh() { # the old set: 20 images in 2 shards, and a file of the user's
  rm -rf "${set:?}"
  cp -r "$WORK/old" "$set"
}
mkdir "$set"
synth --train 20 --shards 2 > "$WORK/synth.txt" 2>&1 || fail "synth" "$WORK/synth.txt"
echo mine > "$out/notes.txt"
mv "$set" "$WORK/old"
new=(--train 30 --shards 3 --overwrite)

# whole WHAT: one set, the old or the new one, and the file, which may still be beside after a kill.
whole() {
  "$CONVOY" data info "$out" > "$WORK/info.txt" 2>&1 || fail "$1: no set" "$WORK/info.txt"
  grep -Eq '^train: (20 images in 2|30 images in 3) shards' "$WORK/info.txt" || fail "$1: another set" "$WORK/info.txt"
  cat "$set"/*/notes.txt 2> /dev/null | grep -qx mine || fail "$1: the user's file is gone"
}

# tidy WHAT: the next call leaves one whole set, the user's file in its place, and nothing beside the folder.
tidy() {
  synth --train 20 --shards 2 --overwrite > "$WORK/out.txt" 2>&1 || fail "$1: the next call" "$WORK/out.txt"
  whole "$1: the next call"
  [ "$(ls -A "$set")" = data ] || fail "$1: left beside the folder: $(find "$set")" "$WORK/out.txt"
  [ "$(cat "$out/notes.txt")" = mine ] || fail "$1: the user's file is not in its place"
}

fresh
synth "${new[@]}" > "$WORK/out.txt" 2>&1 || fail "overwrite" "$WORK/out.txt"
whole "overwritten"
grep -q '30 images' "$WORK/info.txt" || fail "not the new set"
[ "$(find "$set" -mindepth 1 | wc -l)" = 6 ] || fail "not 4 shards and a file: $(find "$set")"
ln -s "$out" "$WORK/link"
"$CONVOY" data synth "$WORK/link" --test 5 --size 8 --train 20 --shards 2 --overwrite > "$WORK/out.txt" 2>&1 || fail "link" "$WORK/out.txt"
[ -L "$WORK/link" ] || fail "the link was replaced"
"$CONVOY" data info "$out" | grep -q '20 images' || fail "not behind the link"
pass "overwritten, also behind a link; the folder's other file stays"

if program strace && works "kills between two calls" strace -o "$WORK/trace.txt" true; then
  kills=0
  for call in renameat2 rename unlink rmdir chmod; do
    for at in 1 2 3 4 5 6 7 8; do
      fresh
      code=0
      (
        strace -f -o "$WORK/trace.txt" -e trace=renameat2,rename,unlink,rmdir,chmod -e inject=$call:signal=KILL:when=$at \
          "$CONVOY" data synth "$out" --test 5 --size 8 "${new[@]}" > "$WORK/out.txt"
        exit $?
      ) 2> /dev/null || code=$?
      whole "killed at $call $at"
      [ $code != 0 ] || break
      kills=$((kills + 1))
      [ $((at % 2)) = 0 ] || tidy "killed at $call $at"
    done
  done
  [ $kills -ge 8 ] || fail "killed $kills times only"
  pass "killed before each of $kills calls: one whole set, which the next call puts in order"

  # Where folders cannot be exchanged in one call, the old one is moved aside first.
  aside=0
  for at in 6 7; do # of the renames: the new folder is to get its place, the old one to be the stage
    fresh
    (
      strace -f -o "$WORK/trace.txt" -e trace=renameat2,rename -e inject=renameat2:error=EINVAL -e inject=rename:signal=KILL:when=$at \
        "$CONVOY" data synth "$out" --test 5 --size 8 "${new[@]}" > "$WORK/out.txt"
      exit $?
    ) 2> /dev/null && fail "not killed at rename $at"
    [ -e "$out" ] || aside=$((aside + 1))
    code=0
    synth "${new[@]:0:4}" > "$WORK/out.txt" 2>&1 || code=$?
    expect 2 "killed at rename $at: a call without --overwrite"
    whole "killed at rename $at"
    synth "${new[@]}" > "$WORK/out.txt" 2>&1 || fail "killed at rename $at: the next call" "$WORK/out.txt"
    whole "killed at rename $at: the next call"
  done
  [ "$aside" = 1 ] || fail "the folder was missing $aside times"
  pass "a folder that was moved aside comes back"
fi

# What another call writes is left alone, also the folder.
fresh
mkdir "$set/data.convoy-abcdef"
touch "$set/data.convoy-abcdef/train-00000-of-00001.h5.tmp"
exec 9< "$set/data.convoy-abcdef"
flock 9
synth "${new[@]}" > "$WORK/out.txt" 2>&1 || fail "beside another's folder" "$WORK/out.txt"
[ -e "$set/data.convoy-abcdef/train-00000-of-00001.h5.tmp" ] || fail "another's folder was removed"
exec 9< "$out"
flock 9
code=0
synth "${new[@]}" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "a folder that another call writes to"
one_error "a folder that another call writes to"
exec 9<&-
whole "a folder that another call writes to"
tidy "another's folder, once it is free"
touch "$out/train-00001-of-00002.h5.old"
code=0
synth "${new[@]}" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "an old shard under another name"
[ -e "$out/train-00001-of-00002.h5.old" ] || fail "an old shard under another name is gone"
pass "what another call writes is left alone, as is what a killed one had renamed"

# A call that writes fails: exit 4, the old set, nothing beside it.
if plain "calls that fail, which are preloaded"; then
  failures=0
  for ((at = 1; at < 100; at += at < 50 ? 3 : 1)); do
    fresh
    rm -f "$WORK/reported"
    code=0
    FAIL_UNDER=$set FAIL_AT=$at FAIL_ERRNO=EIO FAIL_REPORT=$WORK/reported LD_PRELOAD=$fail_write "$CONVOY" data synth "$out" \
      --test 5 --size 8 "${new[@]}" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
    whole "write $at failed"
    [ -e "$WORK/reported" ] || break
    failures=$((failures + 1))
    [ $code = 0 ] && grep -q '^warning' "$WORK/err.txt" && continue # the new set is there, something old is left
    expect 4 "write $at failed"
    one_error "write $at failed"
    grep -q '^train: 20 images' "$WORK/info.txt" || fail "write $at failed: not the old set" "$WORK/err.txt" "$WORK/info.txt"
    [ "$(find "$set" -mindepth 1 -maxdepth 1 | wc -l)" = 1 ] || fail "write $at failed: left $(find "$set")" "$WORK/err.txt"
  done
  [ $failures -ge 5 ] || fail "$failures writes only"
  pass "$failures writes failed, one a run: one whole set"
  failures=0
  for ((at = 1; at < 100; at++)); do # a new folder
    rm -rf "${set:?}" "$WORK/reported"
    code=0
    FAIL_UNDER=$set FAIL_AT=$at FAIL_ERRNO=EIO FAIL_REPORT=$WORK/reported LD_PRELOAD=$fail_write "$CONVOY" data synth "$out" \
      --test 5 --size 8 --train 8 --shards 2 > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
    [ -e "$WORK/reported" ] || break
    failures=$((failures + 1))
    expect 4 "a new folder, write $at failed"
    one_error "a new folder, write $at failed"
    [ ! -e "$set" ] || fail "a new folder, write $at failed: left $(find "$set")" "$WORK/err.txt"
  done
  expect 0 "a new folder"
  [ $failures -ge 5 ] || fail "$failures writes only"
  pass "$failures writes failed, one a run, in a new folder: nothing is left"
fi

# A folder that is a file system of its own has no place beside it: its old shards step aside under other names.
if works "a file system of its own" unshare -rm mount -t tmpfs none /mnt; then
  # shellcheck disable=SC2016
  unshare -rm bash -c '
    mkdir "$1" && mount -t tmpfs none "$1" &&
    "$2" data synth "$1" --test 5 --size 8 --train 20 --shards 2 && echo mine > "$1/notes.txt" &&
      "$2" data synth "$1" --test 5 --size 8 --train 30 --shards 3 --overwrite && "$2" data info "$1" && ls -A "$1"' \
    _ "$WORK/mounted" "$CONVOY" > "$WORK/out.txt" 2> "$WORK/err.txt"
  code=$?
  if [ $code != 77 ]; then
    expect 0 "a mounted folder"
    grep -q '^train: 30 images in 3 shards' "$WORK/out.txt" || fail "a mounted folder" "$WORK/out.txt"
    [ "$(tail -n 5 "$WORK/out.txt" | tr '\n' ' ')" = "notes.txt test-00000-of-00001.h5 train-00000-of-00003.h5 train-00001-of-00003.h5 train-00002-of-00003.h5 " ] ||
      fail "a mounted folder holds other files" "$WORK/out.txt"
    pass "a folder that is a file system of its own"
  fi
  # Too little room is seen before anything is written.
  "$CONVOY" data synth "$WORK/large" --train 600 --test 5 > "$WORK/out.txt" 2>&1 || fail "synth" "$WORK/out.txt"
  # shellcheck disable=SC2016
  unshare -rm bash -c '
    mkdir -p "$1" && mount -t tmpfs -o size=1m none "$1" || exit 99
    "$2" data import "$3" "$1/deep/set"; code=$?; ls -A "$1"; exit $code' \
    _ "$WORK/mounted" "$CONVOY" "$WORK/large" > "$WORK/out.txt" 2> "$WORK/err.txt"
  code=$?
  expect 4 "too little room"
  one_error "too little room"
  grep -Eq '^error: .*/set has 1\.0 MB free; the shards need 1\.9 MB' "$WORK/err.txt" || fail "too little room: the error" "$WORK/err.txt"
  [ "$(wc -l < "$WORK/out.txt")" = 1 ] || fail "too little room: something was written" "$WORK/out.txt"
  pass "too little room is seen before anything is written"
fi
