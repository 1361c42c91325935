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
  mkdir "$set"
  synth --train 20 --shards 2 > "$WORK/synth.txt" 2>&1 || fail "synth" "$WORK/synth.txt"
  echo mine > "$out/notes.txt"
}
new=(--train 30 --shards 3 --overwrite)

# whole WHAT: one set, the old or the new one, and the file, which may still be beside after a kill.
whole() {
  "$CONVOY" data info "$out" > "$WORK/info.txt" 2>&1 || fail "$1: no set" "$WORK/info.txt"
  grep -Eq '^train: (20 images in 2|30 images in 3) shards' "$WORK/info.txt" || fail "$1: another set" "$WORK/info.txt"
  cat "$set"/*/notes.txt 2> /dev/null | grep -qx mine || fail "$1: the user's file is gone"
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
    done
  done
  [ $kills -ge 8 ] || fail "killed $kills times only"
  pass "killed before each of $kills calls: one whole set"
fi

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
    [ "$(find "$set" -mindepth 1 -maxdepth 1 | wc -l)" = 1 ] || grep -q 'sync folder' "$WORK/err.txt" ||
      fail "write $at failed: left $(find "$set")" "$WORK/err.txt"
  done
  [ $failures -ge 5 ] || fail "$failures writes only"
  pass "$failures writes failed, one a run: one whole set"
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
fi
