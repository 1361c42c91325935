#!/usr/bin/env bash
# Shards that users have: each variant trains with the same losses as the plain set, on one rank and on four; sizes that
# do not fit the ranks lose no sample.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

make_shards=$(dirname "$CONVOY")/../tests/make_shards
data=$WORK/data
"$CONVOY" data synth "$data" --train 20 --test 101 --shards 1 --size 16 > "$WORK/synth.txt" 2>&1 || fail "synth" "$WORK/synth.txt"
whole=$data/train-00000-of-00001.h5 tested=$data/test-00000-of-00001.h5

train() { # train RANKS DIR OUT OPTION...
  local count=$1 from=$2 to=$3
  shift 3
  ranks "$count" train --data "$from" --out "$to" --backend cpu --threads 1 --deterministic --epochs 2 --batch 6 \
    --log-every 1 --augment flip,crop "$@"
  expect 0 "train $from, np $count"
}
for count in 1 4; do
  train "$count" "$data" "$WORK/plain-$count"
done
grep -q '6 over all ranks: 2 or 1 a rank' "$WORK/out.txt" || fail "the banner does not show the split" "$WORK/out.txt"
close_losses "$WORK/plain-1/loss.csv" "$WORK/plain-4/loss.csv" 2e-5 || fail "1 and 4 ranks differ"
grep -q '^2,8,.*,' "$WORK/plain-4/epochs.csv" || fail "not 8 steps" "$WORK/plain-4/epochs.csv"

# same NAME NOTE: $WORK/NAME gives the plain set's losses, bit for bit, and the banner says NOTE.
same() {
  local count
  cp -n "$tested" "$WORK/$1"
  for count in 1 4; do
    train "$count" "$WORK/$1" "$WORK/run-$1-$count"
    [ -z "$2" ] || grep -qe "$2" "$WORK/out.txt" || fail "$1: the banner does not say '$2'" "$WORK/out.txt"
    diff <(no_times "$WORK/plain-$count/loss.csv") <(no_times "$WORK/run-$1-$count/loss.csv") || fail "$1, np $count: other losses"
    diff <(cut -d, -f1-6 "$WORK/plain-$count/epochs.csv") <(cut -d, -f1-6 "$WORK/run-$1-$count/epochs.csv") ||
      fail "$1, np $count: other test results"
  done
  pass "$1"
}
# variant NAME NOTE WORD...: one shard, rewritten.
variant() {
  local name=$1 note=$2
  shift 2
  mkdir "$WORK/$name"
  "$make_shards" "$whole" "$WORK/$name/train-0.h5" "$@" || fail "make_shards $*"
  same "$name" "$note"
}
variant plain-h5py "1 of 2 shards without a digest"
variant nchw "1 of 2 shards (N,C,H,W), transposed" nchw attributes
variant wide "" labels=i64be
variant int32 "" labels=i32 nchw
variant filtered "" chunk=3 shuffle deflate fletcher32 attributes
variant nchw-filtered "transposed" nchw chunk=7 deflate
variant one-chunk "" chunk=20 fletcher32
variant compact "" compact labels=i32

# Shards of 7, 1, 0 and 12 rows; the last two rewritten in other layouts.
mkdir "$WORK/uneven"
at=0 number=0
for rows in 7 1 0 12; do
  words=()
  [ $rows != 12 ] || words=(chunk=5 deflate nchw)
  "$make_shards" "$whole" "$WORK/uneven/train-0000$number-of-00004.h5" "rows=$at:$rows" "${words[@]}" || fail "make_shards"
  at=$((at + rows)) number=$((number + 1))
done
same uneven ""

# Each test image once, whatever the ranks.
checkpoint=$WORK/plain-1/checkpoints/best.h5
for images in 1 10 101; do
  "$CONVOY" data synth "$WORK/test-$images" --train 20 --test $images --shards 1 --size 16 > /dev/null || fail "synth"
  first=""
  for count in 1 4 16; do
    [ "$count" != 16 ] || [ -z "${CONVOY_SANITIZED:-}" ] || continue
    ranks $count eval --data "$WORK/test-$images" --checkpoint "$checkpoint" --backend cpu --threads 1
    expect 0 "eval of $images images, np $count"
    line=$(tail -1 "$WORK/out.txt" | sed 's/"loss":\([0-9.]*\)[0-9][0-9][0-9].*/\1/')
    case $line in *"\"samples\":$images,"*) ;; *) fail "np $count: not $images samples" "$WORK/out.txt" ;; esac
    correct=${line#*correct\":}
    correct=${correct%%,*}
    first=${first:-$correct}
    [ "$correct" = "$first" ] || fail "$images images, np $count: $correct correct, $first on one rank"
  done
  pass "$images test images at 1, 4 and 16 ranks: $first correct"
done

# Fewer training images than ranks: weighted by count, as on one rank.
"$CONVOY" data synth "$WORK/three" --train 3 --test 1 --shards 2 --size 16 --classes 3 > /dev/null || fail "synth"
for count in 1 4; do
  train "$count" "$WORK/three" "$WORK/three-$count" --batch 5
  [ "$(grep -c 'warning: .*--batch 5 is more than the 3 training images' "$WORK/err.txt")" = 1 ] ||
    fail "np $count: not one warning" "$WORK/err.txt"
done
close_losses "$WORK/three-1/loss.csv" "$WORK/three-4/loss.csv" 2e-5 || fail "3 images on 4 ranks"
pass "3 training images on 4 ranks"

# A channel swap is visible: the banner's means change places.
mkdir "$WORK/bgr"
"$make_shards" "$whole" "$WORK/bgr/train-0.h5" bgr || fail "make_shards bgr"
ranks 1 train --data "$data" --out "$WORK/no" --backend cpu --check
rgb=$(sed -n 's/.*mean \([0-9.]*\),\([0-9.]*\),\([0-9.]*\), std.*/\1 \2 \3/p' "$WORK/out.txt")
ranks 1 train --data "$WORK/bgr" --out "$WORK/no" --backend cpu --check
bgr=$(sed -n 's/.*mean \([0-9.]*\),\([0-9.]*\),\([0-9.]*\), std.*/\3 \2 \1/p' "$WORK/out.txt")
if [ -z "$rgb" ] || [ "$rgb" != "$bgr" ]; then fail "means: '$rgb', swapped '$bgr'"; fi
pass "the banner prints mean and std of the channels"

# With 4 ranks only rank 0 reads metadata, and each byte of the rows leaves the file once.
if program strace && works "who reads what" strace -f -o "$WORK/trace" true; then
  export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # leaks cannot be looked for under strace
  "$CONVOY" data synth "$WORK/traced" --train 400 --test 40 --shards 3 --size 16 > /dev/null || fail "synth"
  for count in 1 4; do
    rm -f "$WORK"/trace.*
    code=0
    mpirun --oversubscribe --bind-to none -np $count strace -ff -y -o "$WORK/trace" -e trace=openat,read,pread64 \
      "$CONVOY" data info "$WORK/traced" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
    expect 0 "data info under strace"
    cat "$WORK"/trace.* | awk -v folder="$WORK/traced/" '
      index($0, folder) == 0 { next }
      /^openat/ { next }
      match($0, /traced\/[^>]*/) { file = substr($0, RSTART, RLENGTH) }
      { n = split($0, part, ", "); at = part[n]; sub(/\).*/, "", at); got = $NF }
      got >= 768 { bytes += got; if (seen[file, at]++) print "twice: " $0 }
      END { if (bytes != 440 * 768) print bytes + 0 " bytes of rows, expected " 440 * 768 }' > "$WORK/doubled"
    [ -s "$WORK/doubled" ] && fail "np $count" "$WORK/doubled"
    readers=$(grep -lE "(read|pread64)\(.*\"\\\\211HDF" "$WORK"/trace.* | wc -l)
    [ "$readers" = 1 ] || fail "np $count: $readers processes read the shards' metadata"
  done
  pass "4 ranks: one reads the metadata, each row is read once"

  # Chunks: each shard is read by one process, after that which read the metadata, and nothing of it twice.
  mkdir "$WORK/packed"
  cp "$WORK"/traced/test-* "$WORK/packed"
  for number in 0 1 2; do
    "$make_shards" "$WORK/traced/train-0000$number-of-00003.h5" "$WORK/packed/train-$number.h5" attributes chunk=10 shuffle deflate ||
      fail "make_shards"
  done
  rm -f "$WORK"/trace.*
  code=0
  mpirun --oversubscribe --bind-to none -np 4 strace -ff -y -o "$WORK/trace" -e trace=openat,read,pread64 \
    "$CONVOY" data info "$WORK/packed" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  expect 0 "data info of chunks under strace"
  for number in 0 1 2; do
    file=$WORK/packed/train-$number.h5
    readers=$(grep -lE "(read|pread64)\(.*$file" "$WORK"/trace.* | wc -l)
    [ "$readers" = 2 ] || fail "np 4: $readers processes read $file"
    bytes=$(cat "$WORK"/trace.* | awk -v file="$file" 'index($0, file) && /^p?read/ && $NF > 0 { sum += $NF } END { print sum + 0 }')
    size=$(stat -c %s "$file")
    if [ "$bytes" -lt $((size * 9 / 10)) ] || [ "$bytes" -gt $((size + 40000)) ]; then fail "np 4: $bytes bytes read of $size"; fi
  done
  pass "4 ranks: a chunked shard is read by one of them, each chunk once"
fi

# Each augmentation changes the losses, and gives the same ones on other ranks.
previous=$WORK/plain-1/loss.csv
for options in "flip,crop --crop-fill reflect" "flip,crop,cutout" "cutout --cutout-size 5"; do
  for count in 1 4; do
    # shellcheck disable=SC2086
    train "$count" "$data" "$WORK/augment-$count" --overwrite --augment $options
  done
  close_losses "$WORK/augment-1/loss.csv" "$WORK/augment-4/loss.csv" 2e-5 || fail "$options: 1 and 4 ranks differ"
  close_losses "$WORK/augment-1/loss.csv" "$previous" 1e-4 > /dev/null && fail "$options changes nothing"
  cp "$WORK/augment-1/loss.csv" "$WORK/previous.csv"
  previous=$WORK/previous.csv
  pass "--augment $options"
done
