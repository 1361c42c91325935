#!/usr/bin/env bash
# How Convoy scales on this machine, in one folder: preflight check, strong and weak scaling of resnet18 (512 and 128
# images a rank) and simplecnn, and for each the prediction for more ranks. Every part has a time limit and its lines in
# the log; a part that fails does not stop the others. About two minutes on two GPUs.
#
# usage: results/scaling.sh [CHECK OPTION...]    e.g. --data shards/cifar10
# environment (defaults in brackets):
#   OUT             folder for scaling.log, table.txt and a folder a case [runs/scaling]
#   CONVOY_BUILD    a build folder, or an archive of results/bundle.sh [build]
#   RANKS           ranks to start; cases are measured on 1, 2, 4, ... and all of them [the visible GPUs, or 2]
#   CONVOY_BACKEND  cuda or cpu [cuda where nvidia-smi finds a GPU]
#   INTER           latency in us and bandwidth in GB/s of a rank between hosts ["5 50", as one 400 Gbit/s adapter a rank]
#   HOST_RANKS      ranks a host in the predictions [RANKS]
#   REHEARSE=1      tiny sizes: only shows that every part runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
OUT=$(realpath -m "${OUT:-runs/scaling}")
build=$(realpath -m "${CONVOY_BUILD:-build}")
gpus=$( (nvidia-smi -L 2>/dev/null || true) | wc -l)
backend=${CONVOY_BACKEND:-$([ "$gpus" -gt 0 ] && echo cuda || echo cpu)}
ranks=${RANKS:-$([ "$gpus" -gt 0 ] && echo "$gpus" || echo 2)}
read -r latency bandwidth <<<"${INTER:-5 50}"
small=${REHEARSE:-0}
mkdir -p "$OUT"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
log=$OUT/scaling.log
: >"$log"
: >"$OUT/table.txt"
failed=0

if [ -f "$build" ]; then # packed by results/bundle.sh: it brings its own MPI and libraries
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  tar -C "$work" -xJf "$build"
  build=$work
  PATH=$build/bin:$PATH
fi
convoy=$build/app/convoy
[ -x "$convoy" ] || { echo "error: no $convoy; build it, or name a build folder in CONVOY_BUILD" >&2; exit 2; }

say() { printf '%s %s\n' "$(date +%T)" "$*" | tee -a "$log"; }
part() { # part SECONDS ARGUMENT...: convoy on all ranks
  local limit=$1 code=0 begin=$SECONDS
  shift
  say "\$ mpirun -n $ranks convoy $*"
  timeout -k 10 "$limit" mpirun -n "$ranks" "$convoy" "$@" </dev/null >"$OUT/part.log" 2>&1 || code=$?
  tee -a "$log" <"$OUT/part.log"
  rm -f "$OUT/part.log"
  say "  exit code $code after $((SECONDS - begin)) s"
  [ "$code" = 0 ] || failed=1
  return "$code"
}
# table NAME: the measured rows of a case, and how far the predictions are off
table() {
  {
    [ ! -e "$OUT/$1/scaling.csv" ] || awk -F, -v name="$1" 'NR > 1 {
      printf "%-22s %-7s %3d ranks  batch %6d  %9.4f ms (%.4f to %.4f)  exposed %8.4f ms  %11.0f images/s  %6.1f %%\n",
        name, $1, $2, $4, $6, $7, $10, $14, $17, 100 * $18 }' "$OUT/$1/scaling.csv"
    [ ! -e "$OUT/$1/predict.csv" ] || awk -F, -v name="$1" 'NR > 1 && $9 != "" && $2 > 1 {
      printf "%-22s predicted %3d ranks, %-12s %9.4f ms, measured %9.4f ms, error %+.1f %%\n",
        name, $2, $1, $4, $9, 100 * $11 }' "$OUT/$1/predict.csv"
    [ ! -e "$OUT/$1/predict.csv" ] || awk -F, -v name="$1" 'NR > 1 && ($2 == 64 || $2 == 4096) {
      printf "%-22s predicted %4d ranks, %-12s %9.4f ms, efficiency %6.1f %%\n", name, $2, $1, $4, 100 * $8 }' "$OUT/$1/predict.csv"
  } >>"$OUT/table.txt"
}
case_of() { # case_of NAME OPTION...
  local name=$1 common
  shift
  common=(--out "$OUT/$name" --overwrite --backend "$backend" "$@")
  part 100 bench scaling "${common[@]}" || true
  part 100 bench predict "${common[@]}" --host-ranks "${HOST_RANKS:-$ranks}" --inter-latency-us "$latency" \
    --inter-bandwidth-gbs "$bandwidth" || true
  table "$name"
}

say "$(uname -srm), $(nproc) cores, $gpus GPUs; $ranks ranks, backend $backend"
say "$("$convoy" --version | head -n 1)"
part 60 check --backend "$backend" --expect-ranks "$ranks" "$@" || true
if [ "$small" = 1 ]; then
  case_of resnet20-4 --model resnet20 --batch 4 --steps 2 --windows 5
  case_of simplecnn-32 --model simplecnn --optimizer adam --batch 32 --steps 5 --windows 5
else
  case_of resnet18-bf16-512 --model resnet18 --precision bf16 --batch 512 --steps 60
  case_of resnet18-bf16-128 --model resnet18 --precision bf16 --batch 128 --steps 200
  case_of simplecnn-fp32-128 --model simplecnn --optimizer adam --batch 128 --steps 2000
fi
echo
cat "$OUT/table.txt"
say "in all $SECONDS s; plots that are missing: gnuplot scaling.gp, gnuplot predict.gp in a case's folder"
exit "$failed"
