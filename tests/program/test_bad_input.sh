#!/usr/bin/env bash
# What is refused: exit 2, one line on stderr that begins with `error:`, nothing written, on one rank and on two.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"

data=$WORK/data
set_of "$data" 200 50
out=$WORK/run

# refuse RANKS PATTERN OPTION...: train with these options is refused, and the error line matches.
refuse() {
  local count=$1 pattern=$2
  shift 2
  ranks "$count" train --data "$data" --out "$out" --backend cpu --threads 1 "$@"
  expect 2 "$*"
  one_error "$*"
  grep '^error: ' "$WORK/err.txt" | grep -qe "$pattern" || fail "$*: no '$pattern' in the error" "$WORK/err.txt"
  [ -e "$out" ] && fail "$*: something was written"
  pass "np $count: $* ($pattern)"
}

# Values and names: refused by the parser, which test_options.c covers row by row.
for pair in "--batch 0" "--batch -3" "--batch 1.5" "--lr 0" "--lr -1" "--lr nan" "--lr inf" "--epochs x" "--epochs 0" \
  "--momentum 1" "--weight-decay -1" "--label-smoothing 1" "--seed -1" "--log-every 0" "--checkpoint-every 0" \
  "--checkpoint-minutes 0" "--keep -1" "--steps 0" "--warmup-steps -1" "--std 0" "--mean 1,2" "--optimizer adm" \
  "--schedule step" "--precision fp16" "--backend gpu" "--augment mixup" "--scale-lr lin" "--lanes 3" \
  "--comm-timeout 0" "--init-timeout 0" "--threads 0" "--eval-batch 0"; do
  # shellcheck disable=SC2086
  refuse 1 "${pair%% *}" $pair
done
refuse 1 "did you mean 'epochs'" --epohcs 3
refuse 2 "did you mean 'epochs'" --epohcs 3
refuse 2 "--lr" --lr nan
refuse 1 "simplecnn" --model simplecn
refuse 2 "resnet18" --model resnet19
refuse 1 "tf32" --precision tf32
refuse 2 "warmup" --warmup-steps 1000000
refuse 2 "2 ranks" --expect-ranks 3
refuse 1 "$WORK/nowhere" --data "$WORK/nowhere"
refuse 2 "$WORK/nowhere" --data "$WORK/nowhere"
refuse 1 "nowhere.conf" --config "$WORK/nowhere.conf"
printf 'epochs = 1\nbacth = 5\n' > "$WORK/bad.conf"
refuse 2 "bad.conf:2.*batch" --config "$WORK/bad.conf"

# A host's config file is another one.
: > "$WORK/0.conf"
each() { # OPTION...: two ranks, each with a config file of its own
  code=0
  # shellcheck disable=SC2016 # the ranks' shell expands
  mpirun --oversubscribe --bind-to none -np 2 sh -c 'exec "$0" "$@" --config "$CONFIGS/$OMPI_COMM_WORLD_RANK.conf"' "$CONVOY" "$@" \
    > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
}
export CONFIGS=$WORK
for line in "batch = 64" "augment = flip" "precision = bf16" "model = resnet20" "checkpoint-every = 3" "mean = 0.5" "lr = 0.1"; do
  echo "$line" > "$WORK/1.conf"
  name=${line%% *} value=${line##* }
  each train --data "$data" --out "$out" --backend cpu --threads 1
  expect 2 "$line on one rank only"
  one_error "$line on one rank only"
  grep -q -- "^error: --$name is '.*' on rank 0 and '$value' on rank 1;" "$WORK/err.txt" || fail "$line: the error" "$WORK/err.txt"
  [ -e "$out" ] && fail "$line on one rank only: something was written"
done
echo "eval-batch = 7" > "$WORK/1.conf"
each eval --data "$data" --checkpoint "$WORK/nowhere"
expect 2 "eval with other options"
grep -q -- "--eval-batch is '250' on rank 0 and '7' on rank 1" "$WORK/err.txt" || fail "eval with other options" "$WORK/err.txt"
cp -r "$data" "$WORK/copy"
printf 'data = %s\nout = %s\nthreads = 2\nplan-cache = none\nquiet = on\n' "$WORK/copy" "$out-of-rank-1" > "$WORK/1.conf"
printf 'data = %s\nout = %s\nthreads = 1\n' "$data" "$WORK/each" > "$WORK/0.conf"
each train --backend cpu --steps 2
expect 0 "paths and threads of each rank's own"
[ -e "$out-of-rank-1" ] && fail "rank 1 wrote"
pass "ranks with other options are refused by name; paths, threads and --quiet may differ"

mkdir "$WORK/empty"
refuse 2 "$WORK/empty" --data "$WORK/empty"
cp -r "$data" "$WORK/cut"
shard=$(find "$WORK/cut" -name 'train-*.h5' | sort | tail -1)
truncate -s -100 "$shard"
refuse 1 "$(basename "$shard")" --data "$WORK/cut"
refuse 2 "$(basename "$shard")" --data "$WORK/cut"
cp -r "$data" "$WORK/text"
shard=$(find "$WORK/text" -name 'train-*.h5' | sort | head -1)
echo "not a shard" > "$shard"
refuse 2 "$(basename "$shard")" --data "$WORK/text"

mkdir "$out"
echo mine > "$out/notes.txt"
for count in 1 2; do
  ranks "$count" train --data "$data" --out "$out" --backend cpu --threads 1
  expect 2 "a folder that is not empty"
  one_error "a folder that is not empty"
  [ "$(ls "$out")" = notes.txt ] || fail "the folder was touched"
done
rm -r "$out"
pass "a folder that is not empty is left alone"

for count in 1 2; do
  for arguments in "trian" "evl --data $data" "eval --data $data --checkpoint $WORK/nowhere" "eval --data $data" \
    "eval --checkpoint $WORK --data $data" "train" "train --data $data"; do
    # shellcheck disable=SC2086
    ranks "$count" $arguments
    expect 2 "$arguments"
    one_error "$arguments"
  done
done
pass "unknown commands, missing options, missing checkpoints"

# A launch that MPI would turn into several runs of one rank.
code=0
SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=0 "$CONVOY" train --data "$data" --out "$out" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "silent singletons"
one_error "silent singletons"
code=0
SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1 "$CONVOY" train --data "$data" --out "$out" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "silent singletons, second task"
[ -s "$WORK/err.txt" ] && fail "the second task speaks too" "$WORK/err.txt"
[ -e "$out" ] && fail "something was written"
pass "silent singletons are refused by one line"

# What cannot be printed was not said.
for words in --help --version "train --help" "data import --help"; do
  code=0
  # shellcheck disable=SC2086 # words are split on purpose
  "$CONVOY" $words > /dev/full 2> "$WORK/err.txt" || code=$?
  expect 4 "$words on a full device"
  one_error "$words on a full device"
done
pass "help that cannot be written: exit 4"

# Closed standard streams: their numbers are not given to files or pipes of the run, which would get its lines.
code=0
"$CONVOY" train --data "$data" --out "$WORK/closed" --backend cpu --threads 1 --steps 1 <&- >&- 2>&- || code=$?
expect 4 "standard streams are closed"
"$CONVOY" eval --data "$data" --checkpoint "$WORK/closed" --backend cpu --threads 1 > "$WORK/out.txt" 2> "$WORK/err.txt" ||
  fail "closed streams: no checkpoint" "$WORK/err.txt"
pass "closed standard streams stay closed"

# What is no plain file is not replaced by one.
mkfifo "$WORK/pipe"
for arguments in "export --checkpoint $WORK/closed" "report $WORK/closed"; do
  # shellcheck disable=SC2086
  ranks 1 $arguments --out "$WORK/pipe"
  expect 2 "$arguments to a pipe"
  one_error "$arguments to a pipe"
  [ -p "$WORK/pipe" ] || fail "$arguments: the pipe was replaced"
done
refuse 1 "device or pipe" --metrics "$WORK/pipe"
[ -p "$WORK/pipe" ] || fail "--metrics: the pipe was replaced"
pass "a pipe is not replaced by a file"

# An output replaces only a former one of its kind: no file of a run, no input, no shard, none of the user's.
run=$WORK/closed conf=$WORK/run.conf shard=$data/train-00000-of-00005.h5
echo "epochs = 1" > "$conf"
ranks 1 export --checkpoint "$run" --format safetensors --out "$WORK/w.safetensors"
expect 0 "export"
contents() { find "$run" "$data" "$conf" "$WORK/w.safetensors" -type f -exec sha256sum {} + | sort; }
contents > "$WORK/before.txt"
protects() { # WHAT ARGUMENT...: refused, and nothing changed
  local what=$1
  shift
  ranks 1 "$@"
  expect 2 "$what"
  one_error "$what"
  contents | diff "$WORK/before.txt" - > "$WORK/diff.txt" || fail "$what: changed" "$WORK/diff.txt"
  [ -e "$out" ] && fail "$what: a run was begun"
}
trained=(train --data "$data" --out "$out" --backend cpu --threads 1 --steps 1)
step=$run/checkpoints/step-00000001.h5
for target in "$step" "$shard" "$conf" "$WORK/w.safetensors" "$run/lock" "$run"; do
  protects "report --out $target" report "$run" --out "$target"
done
for target in "$run/loss.csv" "$conf"; do
  protects "export --out $target" export --checkpoint "$run" --out "$target"
  protects "--metrics $target" "${trained[@]}" --config "$conf" --metrics "$target"
done
protects "report --svg" report "$run" --out "$WORK/x.html" --svg "$conf"
protects "report --png" report "$run" --out "$WORK/x.html" --png "$run/checkpoints/new.h5"
protects "one name for two outputs" report "$run" --out "$WORK/x" --svg "$WORK/./x"
[ -e "$WORK/x" ] && fail "one name for two outputs: written"
for apart in "--tensorboard $WORK/x" "--tensorboard $WORK/./x/" "--out $WORK/x"; do
  # shellcheck disable=SC2086
  protects "--metrics and $apart" "${trained[@]}" --metrics "$WORK/x" $apart
  { [ ! -e "$WORK/x" ] && [ ! -s "$WORK/out.txt" ]; } || fail "--metrics and $apart: begun before it was refused" "$WORK/out.txt"
done
protects "--metrics in the new run" "${trained[@]}" --metrics "$out/loss.csv"
protects "--tensorboard in the new run" "${trained[@]}" --tensorboard "$out/run.json/"
ln -s "$run/loss.csv" "$WORK/x.html.tmp"
protects "a link under the temporary name" report "$run" --out "$WORK/x.html"
rm "$WORK/x.html.tmp"
protects "the weights that --overwrite removes" train --data "$data" --out "$run" --overwrite --init "$step" --backend cpu
protects "weights into a run" import-weights "$WORK/w.safetensors" --out "$run/checkpoints"
ranks 1 import-weights "$WORK/w.safetensors" --out "$WORK/weights"
expect 0 "weights into a new folder"
cp -r "$WORK/weights" "$WORK/weights.before"
protects "weights over others" import-weights "$WORK/w.safetensors" --out "$WORK/weights"
diff -r "$WORK/weights" "$WORK/weights.before" || fail "weights over others: replaced"
mkdir "$WORK/bench"
echo mine > "$WORK/bench/scaling.gp"
protects "bench --overwrite" bench scaling --model simplecnn --batch 1 --steps 1 --windows 5 --overwrite --out "$WORK/bench" --backend cpu
[ "$(cat "$WORK/bench/scaling.gp")" = mine ] || fail "bench --overwrite: replaced"
touch "$WORK/twice.html"
for _ in 1 2; do
  ranks 1 report "$run" --out "$WORK/twice.html"
  expect 0 "a page in place of an empty file and of a former one"
  ranks 1 export --checkpoint "$run" --out "$WORK/twice.onnx"
  expect 0 "an export in place of a former one"
done
ranks 1 export --checkpoint "$run" --format safetensors --out "$WORK/w.safetensors"
expect 0 "weights in place of former ones"
pass "outputs replace only what they made"

# Pipes, devices and folders in place of files to read: refused at once.
refuses() { # PATTERN ARGUMENT...
  local pattern=$1
  shift
  code=0
  timeout -k 1 20 "$CONVOY" "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  expect 2 "$*"
  one_error "$*"
  grep '^error: ' "$WORK/err.txt" | grep -q "$pattern" || fail "$*: no '$pattern' in the error" "$WORK/err.txt"
}
mkdir "$WORK/piped" "$WORK/folder"
mkfifo "$WORK/piped/run.json"
cp "$run/run.json" "$WORK/folder"
mkfifo "$WORK/folder/loss.csv"
refuses "is a pipe" "${trained[@]}" --config "$WORK/pipe"
refuses "is a pipe" "${trained[@]}" --config <(echo "epochs = 1")
refuses "is a folder" "${trained[@]}" --config "$WORK"
refuses "is a pipe" "${trained[@]}" --init "$WORK/pipe"
refuses "is a pipe" predict --checkpoint "$run" --backend cpu "$WORK/pipe"
refuses "is a device" predict --checkpoint "$run" --backend cpu /dev/zero
refuses "^error: --json" predict --checkpoint "$run" --backend cpu -- --json # a file's name
refuses "is a pipe" import-weights "$WORK/pipe" --out "$WORK/y"
refuses "is a pipe" report "$WORK/piped" --out "$WORK/y.html"
refuses "is a pipe" report "$WORK/folder" --out "$WORK/y.html"
refuses "is a pipe" eval --data "$data" --checkpoint "$WORK/pipe" --backend cpu
refuses "is a pipe" train --data "$data" --out "$WORK/folder" --backend cpu --threads 1 --steps 1 --resume
[ -e "$out" ] && fail "a run was begun"
pass "pipes, devices and folders are not read as files"

# Why a folder cannot be made.
ln -s "$WORK/gone" "$WORK/dangling"
ranks 1 train --data "$data" --out "$WORK/dangling/run" --backend cpu --threads 1
expect 4 "a link to nothing"
one_error "a link to nothing"
grep -q "dangling: it is a link to nothing" "$WORK/err.txt" || fail "a link to nothing is not named" "$WORK/err.txt"
[ -e "$WORK/gone" ] && fail "the link's target was made"
pass "a link to nothing is named"

# A run whose output nobody reads any more goes on.
{
  code=0
  "$CONVOY" train --data "$data" --out "$WORK/unread" --backend cpu --threads 1 --epochs 20 --log-every 1 --verbose 2> "$WORK/err.txt" || code=$?
  echo "$code" > "$WORK/code.txt"
} | head -1 > "$WORK/out.txt"
code=$(cat "$WORK/code.txt")
expect 4 "nobody reads the output"
one_error "nobody reads the output"
grep -q '"status":[[:space:]]*"complete"' "$WORK/unread/run.json" || fail "the run did not go on" "$WORK/unread/run.json"
pass "a run whose output nobody reads goes on"
