#!/usr/bin/env bash
# `convoy data import` from a folder of shards: other shards of the same rows, parts of them, and its refusals.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

make_shards=$(dirname "$CONVOY")/../tests/make_shards
data=$WORK/data
"$CONVOY" data synth "$data" --train 200 --test 40 --shards 3 --size 16 > "$WORK/synth.txt" 2>&1 || fail "synth" "$WORK/synth.txt"

digest_of() { "$CONVOY" data info "$1" | sed -n 's/^digest: //p'; }
count_of() { "$CONVOY" data info "$1" | awk -v class="$2" '$2 == class { print $3 }' | head -1; }
import() { # import ARGUMENT...: must work
  ranks 1 data import "$@"
  expect 0 "import $*"
}

# Hostile chunks, N,C,H,W, wide labels, an empty shard: rewritten, the same set.
mkdir "$WORK/hostile"
number=0
for shard in "$data"/train-*.h5; do
  "$make_shards" "$shard" "$WORK/hostile/train-$number.h5" chunk=60 deflate nchw labels=i64be classes=10 || fail "make_shards"
  number=$((number + 1))
done
"$make_shards" "$data/train-00000-of-00003.h5" "$WORK/hostile/train-9.h5" rows=0:0 classes=10 || fail "make_shards"
cp "$data"/test-* "$WORK/hostile"
ranks 4 train --data "$WORK/hostile" --out "$WORK/no" --backend cpu --check --batch 10
expect 0 "hostile chunks"
[ "$(grep -c "chunks of 60 rows.*convoy data import --from .*--rechunk" "$WORK/err.txt")" = 1 ] ||
  fail "chunks: not one warning" "$WORK/err.txt"
import --from "$WORK/hostile" --out "$WORK/cured" --rechunk
[ "$(digest_of "$WORK/cured")" = "$(digest_of "$data")" ] || fail "rewritten: another digest"
[ -e "$WORK/cured/train-00003-of-00004.h5" ] || fail "not as many shards as there were"
ranks 4 train --data "$WORK/cured" --out "$WORK/no" --backend cpu --check --batch 10 --memory-limit 0.01
expect 0 "rewritten and streamed"
grep -q 'chunks of' "$WORK/err.txt" "$WORK/out.txt" && fail "a warning after the cure" "$WORK/err.txt"
import --from "$WORK/hostile" --out "$WORK/fewer" --rechunk --shards 2
[ "$(ls "$WORK/fewer")" = "$(printf '%s\n' test-00000-of-00001.h5 train-0000{0,1}-of-00002.h5)" ] || fail "--rechunk --shards 2: $(ls "$WORK/fewer")"
[ "$(digest_of "$WORK/fewer")" = "$(digest_of "$data")" ] || fail "--rechunk --shards 2: another digest"
import "$WORK/hostile" "$WORK/seven" --shards 7 --test-shards 2
[ "$(digest_of "$WORK/seven")" = "$(digest_of "$data")" ] || fail "7 shards: another digest"
[ "$(find "$WORK/seven" -type f | wc -l)" = 9 ] || fail "not 7 and 2 shards"
pass "rewritten: the same rows"

import "$data" "$WORK/two" --keep-classes 7,2
"$CONVOY" data info "$WORK/two" > "$WORK/info.txt"
grep -q '^classes: 2$' "$WORK/info.txt" || fail "not 2 classes" "$WORK/info.txt"
grep -q '^train: 40 images' "$WORK/info.txt" || fail "not 40 images" "$WORK/info.txt"
ranks 1 data check "$WORK/two"
expect 0 "check of two classes"
for seed in 1 1 2; do
  rm -rf "$WORK/part"
  import "$data" "$WORK/part" --fraction 0.25 --seed $seed
  digest_of "$WORK/part" >> "$WORK/digests"
  [ "$(count_of "$WORK/part" 3)" = 5 ] || fail "a quarter of 20 images is not 5"
done
[ "$(sed -n 1p "$WORK/digests")" = "$(sed -n 2p "$WORK/digests")" ] || fail "the same seed gives another part"
[ "$(sed -n 2p "$WORK/digests")" != "$(sed -n 3p "$WORK/digests")" ] || fail "another seed gives the same part"
pass "parts by class and by fraction"

# refused WHAT PATTERN ARGUMENT...: exit 2, one line, no output.
refused() {
  local what=$1 pattern=$2
  shift 2
  ranks 1 data import "$@" --out "$WORK/none"
  expect 2 "$what"
  one_error "$what"
  grep -qe "$pattern" "$WORK/err.txt" || fail "$what: no '$pattern'" "$WORK/err.txt"
  [ -e "$WORK/none" ] && fail "$what: something was written"
  pass "$(sed -n "s,^error: $WORK/,,p" "$WORK/err.txt")"
}
refused "an unknown class" "no class '10'" --from "$data" --keep-classes 1,10
cp -r "$data" "$WORK/flipped"
printf '\377\001' | dd of="$WORK/flipped/train-00001-of-00003.h5" bs=1 seek=5000 conv=notrunc status=none
refused "a flipped byte" "train-00001-of-00003.h5.*damaged" --from "$WORK/flipped"
mkdir "$WORK/tree"
refused "no shards" "holds no shards" --from "$WORK/tree" --rechunk
