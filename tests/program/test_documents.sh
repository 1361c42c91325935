#!/usr/bin/env bash
# The documents say what the program and the tree have: links, named files, sources, options, environment variables; and the check of
# that finds a fault of each kind, planted in copies.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
check() { "$CONVOY_PYTHON" "$root/tests/program/documents_check.py" "$1" "$CONVOY" > "$WORK/out.txt" 2>&1; }

check "$root" || fail "the documents" "$WORK/out.txt"
pass "$(cat "$WORK/out.txt")"

# finds WHAT FILE SED LINE: FILE of a copy, changed by SED, is found with a line that contains LINE, and nothing else is.
finds() {
  local copy=$WORK/copy
  mkdir "$copy"
  (cd "$root" && tar cf - --exclude='./.git' --exclude='./build*' --exclude='./runs' --exclude='*.h5' .) | tar xf - -C "$copy"
  sed -i "$3" "$copy/$2"
  ! cmp -s "$root/$2" "$copy/$2" || fail "$1: nothing is planted"
  ! check "$copy" || fail "$1 is not found"
  grep -vF "$4" "$WORK/out.txt" && fail "$1: other faults" "$WORK/out.txt"
  grep -qF "$4" "$WORK/out.txt" || fail "$1: not named" "$WORK/out.txt"
  rm -rf "$copy"
}
finds "a dead link" README.md 's|(app/FAQ.md)|(app/QAF.md)|' "README.md: link to app/QAF.md, which is not in the tree"
finds "an anchor without a heading" README.md 's|models.md#fine-tuning|models.md#tuning|' "link to app/models.md#tuning, where no heading"
finds "a heading that is gone" app/run.md 's|^## Watching a run|## Looking on|' "link to app/run.md#watching-a-run, where no heading"
finds "a file that is not there" CONTRIBUTING.md 's|tests/package\.sh|tests/packing.sh|' "CONTRIBUTING.md: names tests/packing.sh"
finds "a source without a row" app/README.md "/signals\.c/d" "app/README.md: no row names signals.c"
finds "a test that is not there" app/faults.md 's|program/test_stop|program/test_halt|' "names program/test_halt.sh"
finds "an option that no program has" app/FAQ.md 's|--expect-ranks|--expected-ranks|' "app/FAQ.md: no program has an option --expected-ranks"
finds "an option of another command" README.md 's|eval --data shards/cifar10|eval --lr 1 --data shards/cifar10|' \
  "README.md: convoy eval has no option --lr"
finds "an option of a job script" jobs/README.md 's|--checkpoint-minutes 5|--host-ranks 5|' "convoy train has no option --host-ranks"
finds "an option without a word" data/README.md 's|--rechunk|rechunk|' "convoy data import --rechunk stands in no document"
finds "a variable without a word" app/faults.md 's|CONVOY_TRACE|TRACE|' "CONVOY_TRACE, which the program reads"
pass "faults of each kind are found"
