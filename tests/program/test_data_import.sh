#!/usr/bin/env bash
# `convoy data import` on one rank and on four: the same shards; what cannot be taken is refused in one line, exit 2, and
# leaves nothing, neither at its output nor outside of it.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

# CIFAR-10's binary version, 20 images a file.
batches=$WORK/cifar-10-batches-bin
mkdir "$batches"
printf '%s\n' airplane automobile bird cat deer dog frog horse ship truck > "$batches/batches.meta.txt"
for file in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
  for row in {0..19}; do
    # shellcheck disable=SC2059
    printf "\\$(printf %o $((row % 10)))"
    head -c 3072 /dev/urandom
  done > "$batches/$file.bin"
done
tar czf "$WORK/cifar.tar.gz" -C "$WORK" cifar-10-batches-bin
for count in 1 4; do
  ranks $count data import "$WORK/cifar.tar.gz" "$WORK/shards-$count" --shards 3 --seed 2
  expect 0 "import, np $count"
  [ "$(find "$WORK/shards-$count" -type f | wc -l)" = 4 ] || fail "np $count: not 4 files"
  ranks $count data check "$WORK/shards-$count"
  expect 0 "check, np $count"
done
diff -r "$WORK/shards-1" "$WORK/shards-4" || fail "4 ranks make other shards"
for arguments in "--shards 3 --seed 2 -- $WORK/cifar.tar.gz --dashes" "$WORK/cifar.tar.gz --shards 3 --seed 2 -- --dashes"; do
  # shellcheck disable=SC2086
  (cd "$WORK" && ranks 1 data import $arguments && expect 0 "import into a folder with a name like an option") || exit 1
  diff -r "$WORK/shards-1" "$WORK/--dashes" || fail "behind '--': other shards"
  rm -r "$WORK/--dashes"
done
ranks 4 train --data "$WORK/shards-4" --out "$WORK/run" --backend cpu --threads 1 --epochs 1 --batch 20
expect 0 "train"
pass "1 and 4 ranks import the same shards"

before=$(find "$WORK" | grep -v '/\(out\|err\).txt$' | sort)
# refused WHAT PATTERN FROM OPTION...: on one rank and on four.
refused() {
  local count what=$1 pattern=$2 now
  shift 2
  for count in 1 4; do
    ranks $count data import --out "$WORK/none/set" --from "$@"
    expect 2 "$what, np $count"
    one_error "$what, np $count"
    grep -qe "$pattern" "$WORK/err.txt" || fail "$what, np $count: no '$pattern'" "$WORK/err.txt"
    now=$(find "$WORK" | grep -v '/\(out\|err\).txt$\|/bad' | sort)
    [ "$now" = "$before" ] || fail "$what, np $count: something was written"
  done
  pass "$(sed -n "s,^error: ,,p" "$WORK/err.txt")"
}
bad=$WORK/bad
spoil() { rm -rf "$bad" && cp -r "$batches" "$bad"; }
spoil && truncate -s -1 "$bad/data_batch_2.bin"
refused "a cut file" "data_batch_2.bin.*multiple of 3073" "$bad"
spoil && printf '\012' | dd of="$bad/data_batch_3.bin" bs=1 seek=3073 conv=notrunc status=none
refused "a label" "data_batch_3.bin.*row 1: label 10" "$bad"
spoil && rm "$bad/data_batch_4.bin"
refused "a missing file" "data_batch_4.bin.*missing" "$bad"

# Archives of an image tree; the images need not be good ones to be refused by name first.
tree() { # tree NAME: bad/NAME holds one member more
  rm -rf "$bad" && mkdir -p "$bad/set/train/cat" "$bad/set/test/cat"
  printf 'GIF89a' > "$bad/set/train/cat/1.png"
}
tree && tar cf "$bad/a.tar" -C "$bad" set
refused "another kind of image" "train/cat/1.png.*neither a JPEG nor a PNG" "$bad/a.tar"
tree && (cd "$bad/set/train" && tar cPf "$bad/a.tar" ../train/cat/1.png)
refused "a path upwards" "train/cat/1.png.*'\.\.'" "$bad/a.tar"
tree && tar cPf "$bad/a.tar" --transform 's,.*,/train/cat/1.png,' "$bad/set/train/cat/1.png"
refused "an absolute path" "/train/cat/1.png.*absolute" "$bad/a.tar"
tree && rm "$bad/set/train/cat/1.png" && ln -s /etc/passwd "$bad/set/train/cat/1.png" && tar cf "$bad/a.tar" -C "$bad" set
refused "a link" "train/cat/1.png.*a link" "$bad/a.tar"
tree && tar czf "$bad/a.tar.gz" -C "$bad" set && truncate -s 100 "$bad/a.tar.gz"
refused "a cut archive" "a.tar.gz" "$bad/a.tar.gz"
tree && rm "$bad/set/train/cat/1.png"
refused "an empty tree" "holds no image" "$bad"
refused "what is not there" "absent.*No such file" "$WORK/absent"
