#!/usr/bin/env bash
# Tests the newest of several builds on a machine with one or two GPUs and times all of them in turn, in less than 500 s:
# a step of resnet18 at 128 and 512 images a GPU on one GPU and on two, NCCL's limits, the whole process of 15 epochs, each
# kernel of a step. Every part has a time limit and a log of its own; a part that fails does not stop the others.
#
# usage: results/h200-speed/compare.sh FOLDER
#   FOLDER/programs.tar.xz   app/convoy-NAME, the builds, oldest first by name; tests/: suites of the newest one
#   FOLDER/lib               libraries that the machine lacks
#   FOLDER/images.tar.xz     images to train on, as `convoy data import` takes them; none: generated ones
# environment: OUT, folder of the logs [runs/compare]; WORK, scratch [/tmp/convoy-compare]; PARTS, a list [all]; ROOT, the repository
set -uo pipefail
cd "${ROOT:-$(dirname "${BASH_SOURCE[0]}")/../..}" || exit 1
[ $# = 1 ] || { sed -n '6,10p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 2; }
from=$(realpath "$1")
OUT=$(realpath -m "${OUT:-runs/compare}")
work=${WORK:-/tmp/convoy-compare}
parts=${PARTS:-suites lanes one two ctas whole kernels memory}
mkdir -p "$OUT" "$work"
export LD_LIBRARY_PATH="$from/lib:${LD_LIBRARY_PATH:-}" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none XDG_CACHE_HOME=$work/cache
export CONVOY_GOLDEN=$PWD/tests/golden
table=$OUT/table.txt
gpus=$(nvidia-smi -L | wc -l)

say() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$table"; }
# part SECONDS LOG COMMAND...: its output goes to $OUT/LOG.log
part() {
  local limit=$1 log=$OUT/$2.log code=0
  shift 2
  timeout -k 5 "$limit" stdbuf -oL -eL "$@" >>"$log" 2>&1 </dev/null || code=$?
  [ "$code" = 0 ] || say "FAILED with $code: $* ($(tail -n 1 "$log" | cut -c1-150))"
  return "$code"
}
on() { # on GPU PART...: the part sees that GPU alone
  CUDA_VISIBLE_DEVICES=$1 part "${@:2}"
}
other() { echo $((gpus > 1 ? 1 : 0)); } # the GPU of what runs beside the first one's part
alone() { [ "$gpus" -ge 2 ] || wait; }   # after a part in the background: with one GPU the next waits for it
wanted() { [[ " $parts " == *" $1 "* ]]; }

tar -C "$work" -xJf "$from/programs.tar.xz" && chmod +x "$work"/app/* "$work"/tests/*
mapfile -t programs < <(find "$work/app" -name 'convoy-*' | sort)
newest=${programs[-1]}
cp "$newest" "$work/app/convoy"
oldest=${programs[0]}
say "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | tr -s ' '); builds: $(printf '%s ' "${programs[@]##*/convoy-}")"
if [ -e "$from/images.tar.xz" ]; then
  mkdir -p "$work/images" && tar -C "$work/images" -xJf "$from/images.tar.xz"
  folder=$(dirname "$(find "$work/images" -maxdepth 3 -type d -name train | head -n 1)")
  part 60 data "$newest" data import "$folder" "$work/shards"
else
  part 60 data "$newest" data synth "$work/shards"
fi

suite() { # suite GPU NAME SECONDS
  local log=suite-$2
  on "$1" "$3" "$log" "$work/tests/test_$2_on_backend" cuda && say "suite $2: $(grep -a 'PASSED' "$OUT/$log.log" | tail -n 1)"
}
stage_suites() { # the long one beside the others
  suite 0 ops 110 &
  for name in net step backend golden lanes profile finetune; do suite "$(other)" "$name" 45; done
  wait
  [ "$gpus" -lt 2 ] || { part 40 suite-allreduce mpirun -n 2 "$work/tests/test_allreduce_on_backend" cuda && say "suite allreduce on two GPUs: $(grep -ac 'PASSED' "$OUT/suite-allreduce.log") ranks passed"; }
}
stage_lanes() {
  part 70 lanes bash tests/program/test_lanes_cuda.sh "$work/app/convoy"
  say "lanes: $(grep -ac '^ok' "$OUT/lanes.log") of 3 models have the same bits on 1 to $gpus GPUs"
}

# step LOG: the times of the last step in a log of `bench step`
step() { grep -aE '^(step:|in the step)' "$OUT/$1.log" | tail -n 2 | tr '\n' ' ' | cut -c1-230; }
bench() { # bench SECONDS LOG RANKS BATCH PROGRAM
  part "$1" "$2" mpirun -n "$3" "$5" bench step --model resnet18 --precision bf16 --batch "$4" --steps $((51200 / $4)) --repeats 7
}
stage_one() { # 128 on the first GPU while 512 runs on the second; the oldest and the newest twice
  local turn program name
  for turn in 1 2; do
    for program in "${programs[@]}"; do
      [ "$turn" = 1 ] || [ "$program" = "$oldest" ] || [ "$program" = "$newest" ] || continue
      name=${program##*/convoy-}
      CUDA_VISIBLE_DEVICES=0 bench 25 "one-128-$name-$turn" 1 128 "$program" &
      alone
      CUDA_VISIBLE_DEVICES=$(other) bench 25 "one-512-$name-$turn" 1 512 "$program"
      wait
      say "one GPU, 128, $name: $(step "one-128-$name-$turn")"
      say "one GPU, 512, $name: $(step "one-512-$name-$turn")"
    done
  done
}
stage_two() {
  local program name
  [ "$gpus" -ge 2 ] || return 0
  for program in "${programs[@]}"; do
    name=${program##*/convoy-}
    bench 25 "two-128-$name" 2 256 "$program"
    say "two GPUs, 128 each, $name: $(step "two-128-$name")"
  done
  for program in "$oldest" "$newest"; do
    name=${program##*/convoy-}
    bench 25 "two-512-$name" 2 1024 "$program"
    say "two GPUs, 512 each, $name: $(step "two-512-$name")"
    part 20 "two-simplecnn-$name" mpirun -n 2 "$program" bench step --model simplecnn --optimizer adam --batch 256 --steps 2000 --repeats 10
    say "two GPUs, simplecnn, $name: $(step "two-simplecnn-$name")"
  done
}
stage_ctas() {
  local blocks
  [ "$gpus" -ge 2 ] || return 0
  for blocks in 2 3 8 32; do
    NCCL_MAX_CTAS=$blocks bench 25 "ctas-$blocks" 2 256 "$newest"
    say "two GPUs, 128 each, NCCL_MAX_CTAS=$blocks: $(step "ctas-$blocks")"
  done
}

whole() { # whole NAME RANKS PROGRAM OPTION...; 0 ranks: one without mpirun
  local log=whole-$1 program=$3 begin launch=(mpirun -n "$2")
  [ "$2" != 0 ] || launch=()
  shift 3
  begin=$(date +%s.%N)
  rm -rf "${work:?}/$log"
  part 40 "$log" "${launch[@]}" "$program" train --backend cuda --config jobs/configs/resnet18.conf --data "$work/shards" --out "$work/$log" --log-every 50 "$@"
  say "whole process, $log: $(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f s", b - a }'); $(grep -aE '^(start|time):' "$OUT/$log.log" | tail -n 2 | tr '\n' ' ') accuracy $(tail -n 1 "$work/$log/epochs.csv" | cut -d, -f6)"
  grep -aoE '"(start_seconds|session_[a-z]*|process_seconds)":[^,]*' "$work/$log/run.json" | tr -d '\t' >>"$OUT/$log.log"
}
stage_whole() { # plans are kept from the first runs, which are not counted
  CUDA_VISIBLE_DEVICES=0 whole old-first 1 "$oldest" &
  alone
  CUDA_VISIBLE_DEVICES=$(other) whole new-first 1 "$newest"
  wait
  CUDA_VISIBLE_DEVICES=0 whole old 1 "$oldest"
  CUDA_VISIBLE_DEVICES=0 whole new 1 "$newest"
  CUDA_VISIBLE_DEVICES=0 whole new-large-evaluation 1 "$newest" --eval-batch 1000 &
  alone
  CUDA_VISIBLE_DEVICES=$(other) whole new-one-evaluation 1 "$newest" --eval-every 15 --checkpoint-every 1000000
  wait
  CUDA_VISIBLE_DEVICES=0 whole new-no-launcher 0 "$newest"
  CUDA_VISIBLE_DEVICES=0 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp whole new-lean-mpi 1 "$newest" # no other networks are tried
  [ "$gpus" -lt 2 ] || { whole new-two-first 2 "$newest"; whole new-two 2 "$newest"; }
}

profile() { # profile GPU NAME PROGRAM: each kernel of an eager step at 128 with its time and traffic; first its algorithms
  local options=(--backend cuda --config jobs/configs/resnet18.conf --batch 128 --steps 14 --eval-every 0 --data "$work/shards" --overwrite)
  on "$1" 30 "kernels-$2-first" "$3" train "${options[@]}" --out "$work/kernels-$2"
  CONVOY_EAGER=1 on "$1" 70 "kernels-$2" ncu --csv --clock-control none --cache-control none --launch-skip 1200 --launch-count 170 \
    --metrics gpu__time_duration.sum,dram__bytes.sum \
    "$3" train "${options[@]}" --out "$work/kernels-$2"
  say "kernels, $2: $(grep -ac gpu__time_duration "$OUT/kernels-$2.log") measured"
}
stage_kernels() {
  command -v ncu >/dev/null || { say "no ncu: no times of kernels"; return 0; }
  profile 0 newest "$newest"
}
stage_memory() { # the memory and race checkers on the newest build's own kernels
  local names=() checked
  command -v compute-sanitizer >/dev/null || { say "no compute-sanitizer"; return 0; }
  for checked in stage_conv stage2_conv stage4_conv strided_data filter_parts point_product thin_ norm_ sum_parts update; do names+=(--kernel-regex "kns=$checked"); done
  CONVOY_EAGER=1 on 0 70 memcheck compute-sanitizer --tool memcheck "${names[@]}" "$newest" bench step --model resnet18 --precision bf16 --batch 128 --steps 1 --repeats 1 &
  alone
  CONVOY_EAGER=1 on "$(other)" 70 racecheck compute-sanitizer --tool racecheck "${names[@]}" "$newest" bench step --model resnet18 --precision bf16 --batch 4 --steps 1 --repeats 1
  wait
  say "memcheck: $(grep -a 'ERROR SUMMARY' "$OUT/memcheck.log"); racecheck: $(grep -aE 'RACECHECK SUMMARY|ERROR SUMMARY' "$OUT/racecheck.log" | tail -n 1)"
}

for name in suites lanes one two ctas whole kernels memory; do
  wanted "$name" || continue
  if [ "$SECONDS" -gt 430 ]; then
    say "no time left for: $name"
    continue
  fi
  "stage_$name"
done
say "end"
