#!/usr/bin/env bash
# Measures Convoy on a machine with GPUs, beside PyTorch where it is installed: the CUDA suites, test accuracy,
# throughput, whole processes. Every part has a time limit and its own lines in the log; a part that fails does not stop the others.
#
# usage: results/measure.sh STAGE...      stages: tests sanitizers simplecnn resnet18 throughput bench whole peers
# environment (defaults in brackets):
#   OUT             folder for measure.log, table.txt, runs.tar.gz and the stages' own logs [runs/measure]
#   WORK            scratch: shards and run folders, reused by a later call [/tmp/convoy-measure]
#   CONVOY_BUILD    a build folder, or an archive of results/bundle.sh; built if it is not there [build]
#   IMAGES | DATA   images to import, or a folder of shards [generated images]
#   PEER_DATA       folder of the peers' train.pt and test.pt; made of IMAGES if it is not there
#   PYTHON          the interpreter that has PyTorch [python3]
#   SANITIZED       what the sanitizers run, lines TOOL|SUITE|PATTERN, where SUITE is NAME of test_NAME_on_backend or of
#                   test_cuda_NAME [the op suite in parts, the step suite, the suites that call own kernels directly]
#   RANKS           rank counts to run ["1 2", or "1" where one GPU is visible]
#   CONVOY_BACKEND  cuda or cpu [cuda]
#   REHEARSE=1      tiny sizes: only shows that every part runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || { sed -n '5,18p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 2; }
OUT=$(realpath -m "${OUT:-runs/measure}")
WORK=${WORK:-/tmp/convoy-measure}
build=$(realpath -m "${CONVOY_BUILD:-build}")
backend=${CONVOY_BACKEND:-cuda}
python=${PYTHON:-python3}
mkdir -p "$OUT" "$WORK/runs"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PYTHONUNBUFFERED=1
log=$OUT/measure.log

say() { printf '%s %s\n' "$(date +%T)" "$*" | tee -a "$log"; }
part() { # part SECONDS COMMAND...: its output goes to the log line by line; returns the command's status
  local limit=$1 code=0 begin=$SECONDS
  shift
  say "\$ $*"
  timeout -k 10 "$limit" stdbuf -oL -eL "$@" </dev/null >"$WORK/part.log" 2>&1 || code=$?
  cat "$WORK/part.log" >>"$log"
  [ "$code" = 0 ] || { tail -n 5 "$WORK/part.log"; say "  FAILED with $code after $((SECONDS - begin)) s"; }
  return "$code"
}
outcome() { # outcome CODE: in words; a suite that had to leave something out ends with 77, which is not passed, nor failed
  case $1 in 0) echo passed ;; 77) echo "skipped, in whole or in part" ;; *) echo "FAILED ($1)" ;; esac
}
row() { printf '%-46s %s\n' "$1" "$2" | tee -a "$OUT/table.txt"; }

if [ -f "$build" ]; then # packed by results/bundle.sh: it brings its own MPI and libraries
  rm -rf "$WORK/build"
  mkdir -p "$WORK/build"
  tar -C "$WORK/build" -xJf "$build"
  build=$WORK/build
  PATH=$build/bin:$PATH
elif [ ! -x "$build/app/convoy" ]; then
  # shellcheck source=jobs/setup.sh
  . jobs/setup.sh
  need_packages build test
  build_convoy "$build" all
fi
convoy=$build/app/convoy
if [ -z "${RANKS:-}" ]; then
  RANKS=1
  [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -lt 2 ] || RANKS="1 2"
fi
read -ra ranks <<<"$RANKS"
small=${REHEARSE:-0}
pick() { if [ "$small" = 1 ]; then echo "$2"; else echo "$1"; fi; } # pick FULL REHEARSAL

shards() {
  data=${DATA:-$WORK/shards}
  compgen -G "$data/train-*.h5" >/dev/null && return 0
  if [ -n "${IMAGES:-}" ]; then
    part 200 "$convoy" data import "$IMAGES" "$data"
  else
    part 100 "$convoy" data synth "$data"
  fi
}

# train RANKS NAME OPTION...: a fresh run in $WORK/runs/NAME
train() {
  local n=$1 name=$2
  shift 2
  rm -rf "$WORK/runs/$name"
  part "$(pick 240 200)" mpirun -n "$n" "$convoy" train --backend "$backend" --data "$data" --out "$WORK/runs/$name" "$@"
}
column() { # column FILE NAME: that column's fields, one a line
  awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } c && $c != "" { print $c }' "$1"
}
# speed NAME: median images/s of the logged rows, without the first quarter
speed() {
  column "$WORK/runs/$1/loss.csv" images_per_s |
    awk '{ v[NR] = $1 } END { for (i = int(NR / 4) + 1; i <= NR; i++) print v[i] }' | sort -g |
    awk '{ v[NR] = $1 } END { if (NR) printf "%.0f", v[int((NR + 1) / 2)]; else printf "none" }'
}
accuracy() { column "$WORK/runs/$1/epochs.csv" test_accuracy | tail -n 1; }
seconds() { column "$WORK/runs/$1/loss.csv" seconds | tail -n 1; }

# suite_words NAME: sets `words` to the command that runs a suite: test_NAME_on_backend, which is told the backend, or
# else test_cuda_NAME, which has one only.
suite_words() {
  words=("$build/tests/test_$1_on_backend" "$backend")
  [ -x "${words[0]}" ] || words=("$build/tests/test_cuda_$1")
}
suite_names() { # of all suites for the backend, one a line
  local cuda=
  [ "$backend" != cuda ] || cuda='s/^test_cuda_//p'
  find "$build/tests" -maxdepth 1 -type f -name 'test_*' -printf '%f\n' | sort | sed -nE "s/^test_(.*)_on_backend$/\1/p; $cuda"
}
stage_tests() { # the binaries themselves: a bundle has no ctest
  local name words failed=0 code
  export CONVOY_GOLDEN=$PWD/tests/golden
  : >"$OUT/tests.log"
  for name in $(suite_names); do
    code=0
    suite_words "$name"
    part 200 "${words[@]}" || code=$?
    { echo "== $(basename "${words[*]}"): exit $code"; cat "$WORK/part.log"; } >>"$OUT/tests.log"
    row "$(basename "${words[*]}")" "$(outcome "$code") $(grep -aE 'PASSED' "$WORK/part.log" | tail -n 1)"
    [ "$code" = 0 ] || [ "$code" = 77 ] || failed=1
  done
  return "$failed"
}

# The memory and the race checker on the suites whose work is own kernels, all side by side. Libraries' kernels are left out:
# the race checker fails on some of them.
own_kernels() { # their names, one a line
  find model -name '*.cu' -print0 | xargs -0 cat | tr '\n' ' ' | grep -oE '__global__ +void +(__[a-z_]+__\([^)]*\) +)*[a-z0-9_]+ *\(' |
    sed -E 's/.*[ )]([a-z0-9_]+) *\($/\1/' | sort -u
}
checked() { # checked TOOL SUITE PATTERN
  local code=0 name kernel words only=()
  suite_words "$2"
  name=$1-$2-$(tr -cd 'a-z0-9_' <<<"$3")
  while read -r kernel; do only+=(--kernel-name "kns=$kernel"); done < <(own_kernels)
  timeout -k 5 "$(pick 240 20)" compute-sanitizer --tool "$1" --error-exitcode 9 "${only[@]}" "${words[@]}" "$3" \
    >"$WORK/$name.log" 2>&1 </dev/null || code=$?
  grep -qE '[1-9][0-9]* test\(s\) run' "$WORK/$name.log" || code=1 # no test fits the pattern
  row "$1, $2 '$3'" "$(outcome "$code"); $(grep -aE 'SUMMARY' "$WORK/$name.log" | tail -n 1 | tr -d '=')"
  [ "$code" = 0 ] || [ "$code" = 77 ]
}
stage_sanitizers() {
  local tool suite pattern pid pids=() failed=0
  command -v compute-sanitizer >/dev/null || { say "no compute-sanitizer"; return 1; }
  export CONVOY_GOLDEN=$PWD/tests/golden CONVOY_TEST_MOST=128
  while IFS='|' read -r tool suite pattern; do
    checked "$tool" "$suite" "$pattern" &
    pids+=($!)
  done <<<"${SANITIZED:-$(
    for suite in batchnorm linear a maxpool softmax_xent; do printf '%s|ops|%s*\n' memcheck "$suite" racecheck "$suite"; done
    printf 'memcheck|ops|%s *\n' conv2d conv_bn conv_pool
    for pattern in 'stage forward*' 'stage data*' 'strided*' 'filter*' 'point*' 'thin*'; do
      printf '%s|kernels|%s\n' memcheck "$pattern" racecheck "$pattern"
    done
    for suite in kernels_norm kernels_pool; do printf '%s|%s|*\n' memcheck "$suite" racecheck "$suite"; done
    printf '%s|step|*\n' memcheck racecheck
  )}"
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  tail -n 6 "$WORK"/memcheck-*.log "$WORK"/racecheck-*.log >"$OUT/sanitizers.log"
  return "$failed"
}

stage_simplecnn() {
  local n seed name total
  shards || return 1
  for n in "${ranks[@]}"; do
    total=0
    for seed in 0 1 2; do
      name=simplecnn-n$n-seed$seed
      train "$n" "$name" --config jobs/configs/simplecnn.conf --seed "$seed" --epochs "$(pick 2 1)" --log-every 100 || continue
      row "simplecnn, $n ranks, seed $seed: test accuracy" "$(accuracy "$name") in $(seconds "$name") s"
      total=$(awk -v a="$total" -v b="$(accuracy "$name")" 'BEGIN { print a + b / 3 }')
    done
    row "simplecnn, $n ranks: mean test accuracy" "$total"
  done
  # the same checkpoint on both backends
  name=simplecnn-n${ranks[-1]}-seed0
  local where correct
  for where in "$backend" cpu; do
    correct=none
    if part 100 "$convoy" eval --data "$data" --checkpoint "$WORK/runs/$name" --backend "$where"; then
      correct=$(grep -o '"correct":[0-9]*' "$WORK/part.log" | tail -n 1)
    fi
    row "checkpoint of $name evaluated on $where" "$correct"
  done
}

stage_resnet18() {
  local n name=resnet18-n
  shards || return 1
  for n in "${ranks[@]}"; do
    train "$n" "$name$n" --config jobs/configs/resnet18.conf --epochs "$(pick 15 1)" --log-every 20 \
      "${tiny[@]}" || continue
    part 100 "$convoy" eval --data "$data" --checkpoint "$WORK/runs/$name$n" --backend "$backend" \
      --precision "$precision" || true
    row "resnet18, $n ranks, $precision: test accuracy" \
      "$(grep -o '"accuracy":[0-9.]*' "$WORK/part.log" | tail -n 1), trained in $(seconds "$name$n") s"
  done
}

stage_throughput() {
  local n quiet=(--eval-every 0 --checkpoint-every 1000000000)
  shards || return 1
  for n in "${ranks[@]}"; do
    train "$n" "speed-resnet18-n$n" --config jobs/configs/resnet18.conf --batch $((n * $(pick 512 16))) --epochs 100 \
      --steps "$(pick 1200 4)" --log-every "$(pick 50 1)" \
      "${quiet[@]}" "${tiny[@]}" && row "convoy resnet18 $precision, $n ranks, batch $(pick 512 16) a rank" "$(speed "speed-resnet18-n$n") images/s"
    train "$n" "speed-simplecnn-n$n" --config jobs/configs/simplecnn.conf --batch $((n * 128)) --epochs 1000 \
      --steps "$(pick 12000 60)" --log-every "$(pick 500 5)" \
      "${quiet[@]}" && row "convoy simplecnn fp32, $n ranks, batch 128 a rank" "$(speed "speed-simplecnn-n$n") images/s"
  done
}

stage_bench() { # a step and its parts, on one rank
  local work
  for work in "resnet18 $precision $(pick 512 16) $(pick 100 2)" "resnet18 $precision $(pick 128 4) $(pick 400 2)" "simplecnn fp32 128 $(pick 5000 20)"; do
    read -r model type batch steps <<<"$work"
    part "$(pick 60 200)" "$convoy" bench step --backend "$backend" --model "$model" --precision "$type" --batch "$batch" --steps "$steps" || continue
    cat "$WORK/part.log" >>"$OUT/bench.log"
    row "bench $model $type, batch $batch" "$(grep -a '^step:' "$WORK/part.log")"
  done
}

# whole NAME LAUNCHER... -- OPTION...: a process of resnet18's from before its launch to its end.
whole() {
  local name=$1 begin launcher=()
  shift
  while [ "$1" != -- ]; do launcher+=("$1") && shift; done
  shift
  rm -rf "$WORK/runs/whole"
  begin=$(date +%s.%N)
  part "$(pick 60 200)" "${launcher[@]}" "$convoy" train --backend "$backend" --data "$data" --out "$WORK/runs/whole" \
    --config jobs/configs/resnet18.conf --plan-cache "$WORK/plans" "${tiny[@]}" "$@" || return 0
  row "whole process, $name" "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f", b - a }') s, $(grep -aoE 'first step at [0-9.]* s' "$WORK/part.log"), accuracy $(accuracy whole)"
  { echo "== $name" && cat "$WORK/part.log"; } >>"$OUT/whole.log"
}
stage_whole() {
  local i clocks once=(--eval-every 15 --checkpoint-every 1000000)
  shards || return 1
  rm -rf "$WORK/plans"
  whole "algorithms timed, evaluated and saved each epoch" mpirun -n 1 --
  whole "evaluated and saved each epoch" mpirun -n 1 --
  for i in 1 2 3 4 5; do
    whole "one evaluation and save ($i)" -- "${once[@]}"
    whole "the same by mpirun ($i)" mpirun -n 1 -- "${once[@]}"
  done
  # asking for clocks takes the driver's time: in a run of its own
  nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu,clocks_event_reasons.active --format=csv,noheader -lms 200 >"$OUT/clocks.log" 2>&1 </dev/null &
  clocks=$!
  whole "one evaluation and save, beside a log of clocks" -- "${once[@]}"
  kill "$clocks" 2>/dev/null
  wait "$clocks" 2>/dev/null || true
}

peer() { # peer RANKS SCRIPT OPTION...
  local n=$1 script=$2
  shift 2
  local torchrun=("$python" -m torch.distributed.run --standalone --nproc_per_node="$n")
  [ "$n" != 0 ] || torchrun=("$python")
  part 150 "${torchrun[@]}" "results/peers/$script" "$@" || return 0
  row "peer $script $*, $n ranks" "$(grep -aE '^torch ' "$WORK/part.log" | tail -n 1)"
}
stage_peers() {
  local n
  "$python" -c 'import torch, torchvision' 2>/dev/null || { say "$python has no torch, torchvision: no peers"; return 0; }
  peer_data=${PEER_DATA:-$WORK/peer-data}
  [ -e "$peer_data/train.pt" ] || [ -n "${IMAGES:-}" ] || { say "no IMAGES for the peers"; return 0; }
  [ -e "$peer_data/train.pt" ] || part 150 "$python" "results/peers/prep_data.py" "$IMAGES" "$peer_data"
  for n in "${ranks[@]}"; do
    peer "$n" resnet_ddp.py "$peer_data" --net resnet18 --bs 512 --mode eager --steps "$(pick 60 2)"
    peer "$n" resnet_ddp.py "$peer_data" --net simplecnn --bs 128 --fp32 --mode eager --steps "$(pick 200 2)"
  done
  peer 0 graph_step.py --net resnet18 --bs 512
  peer 0 graph_step.py --net resnet18 --bs 512 --compile
  peer 0 graph_step.py --net resnet18 --bs 128
  peer 0 graph_step.py --net simplecnn --bs 128 --fp32
  peer 0 graph_step.py --net simplecnn --bs 128 --fp32 --compile
}

tiny=()
precision=bf16
if [ "$small" = 1 ]; then # ResNet-18 is slow on CPUs
  precision=fp32
  tiny=(--precision fp32 --steps 4 --batch 16 --warmup-steps 1)
fi
say "$(uname -srm), $(nproc) cores, $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c | tr -s ' ' | paste -sd';' || true); ranks: $RANKS; backend $backend; NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-unset}"
say "$("$convoy" --version | head -n 1)"
failed=0
for stage in "$@"; do
  say "==== $stage"
  case $stage in
    tests) stage_tests || failed=1 ;;
    sanitizers) stage_sanitizers || failed=1 ;;
    simplecnn) stage_simplecnn || failed=1 ;;
    resnet18) stage_resnet18 || failed=1 ;;
    throughput) stage_throughput || failed=1 ;;
    bench) stage_bench || failed=1 ;;
    whole) stage_whole || failed=1 ;;
    peers) stage_peers || failed=1 ;;
    *) say "no such stage"; failed=1 ;;
  esac
done
(cd "$WORK/runs" && find . -name '*.csv' -o -name run.json | sort | tar -czf "$OUT/runs.tar.gz" -T -)
echo
cat "$OUT/table.txt"
exit "$failed"
