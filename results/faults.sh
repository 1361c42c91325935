#!/usr/bin/env bash
# Faults on a machine with two GPUs: a stop and its resume, a killed rank, a frozen rank. Prints each exit code beside
# the expected one and ends with the number of differences.
#
# usage: results/faults.sh CONVOY DATA OUT [TRAIN-OPTION...]   (DATA: a folder of shards; OUT: a new folder)
# LAUNCH: the launcher, by default `mpirun --bind-to none -np 2`. BACKEND: cuda, or cpu to try the script with fewer STEPS (20000).
set -u
[ $# -ge 3 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
convoy=$(readlink -f "$1") data=$2 out=$3
shift 3
read -ra launch <<< "${LAUNCH:-mpirun --bind-to none -np 2}"
backend=${BACKEND:-cuda}
steps=${STEPS:-20000}
last=$(printf %08d "$steps")
wrong=0
mkdir -p "$out" || exit 4
common=(--data "$data" --backend "$backend" --deterministic --log-every 5 --epochs 1000 --eval-every 0 --checkpoint-every $((steps / 20)) --comm-timeout 10
  "$@")

check() { # WHAT FOUND EXPECTED...
  local what=$1 found=$2 code
  shift 2
  for code in "$@"; do
    [ "$found" = "$code" ] && { echo "ok: $what: $found"; return; }
  done
  echo "WRONG: $what: $found, expected $*"
  wrong=$((wrong + 1))
}

train() { # NAME OPTION...: in the background, its pid in $runner
  local name=$1
  shift
  "${launch[@]}" "$convoy" train --out "$out/$name" "${common[@]}" "$@" > "$out/$name.txt" 2> "$out/$name.err" &
  runner=$!
}
finish() { code=0; wait "$runner" || code=$?; }
rows() { # NAME N: waits for N rows of loss.csv
  local i
  for i in $(seq 6000); do
    [ -f "$out/$1/loss.csv" ] && [ "$(wc -l < "$out/$1/loss.csv")" -gt "$2" ] && return
    kill -0 "$runner" 2> /dev/null || return
    sleep 0.02
  done
  echo "no row $2 of $1 after look $i"
}
rank() { # NAME RANK: its pid
  local process
  for process in $(pgrep -f -- "--out $out/$1 "); do
    [ "$(readlink "/proc/$process/exe")" = "$convoy" ] || continue
    tr '\0' '\n' < "/proc/$process/environ" | grep -q "^OMPI_COMM_WORLD_RANK=$2$" && echo "$process"
  done 2> /dev/null | head -1
}
left_over() { rank "$1" 0; rank "$1" 1; }

echo "== stop and resume, bit for bit"
train whole --steps "$steps"
finish
check "undisturbed" "$code" 0
train stopped --steps "$steps"
rows stopped 10
kill -USR1 "$(rank stopped 1)"
finish
check "USR1 to rank 1" "$code" 75
sed -n 's/^stopped/  stopped/p' "$out/stopped.txt"
train stopped --steps "$steps" --resume
finish
check "resumed" "$code" 0
check "loss.csv differs in rows" "$(diff <(cut -d, -f1-4 "$out/whole/loss.csv") <(cut -d, -f1-4 "$out/stopped/loss.csv") | grep -c '^[<>]')" 0
if command -v h5diff > /dev/null; then
  h5diff "$out/whole/checkpoints/step-$last.h5" "$out/stopped/checkpoints/step-$last.h5" /parameters /parameters > "$out/h5diff.txt" 2>&1
  check "weights (h5diff)" $? 0
else
  for name in whole stopped; do
    "$convoy" eval --data "$data" --checkpoint "$out/$name" --backend "$backend" 2> "$out/eval.err" | tail -1 > "$out/$name.json"
  done
  check "evaluation" "$(cat "$out/stopped.json")" "$(cat "$out/whole.json")"
fi

if [ "$backend" = cuda ]; then
  echo "== how long a save stops the steps (resnet18)"
  train save --model resnet18 --steps 600 --batch 256 --checkpoint-every 100
  finish
  check "resnet18" "$code" 0
  grep -h "the steps stood" "$out/save.txt" | sed 's/^/  /'
fi

for victim in 1 0; do
  echo "== rank $victim is killed"
  train "killed-$victim"
  rows "killed-$victim" 10
  kill -KILL "$(rank "killed-$victim" $victim)"
  begun=$(date +%s)
  finish
  check "killed" "$code" 137 5
  echo "  the job ended after $(($(date +%s) - begun)) s"
  sleep 1
  check "processes left" "$(left_over "killed-$victim" | wc -l)" 0

  echo "== rank $victim freezes"
  train "frozen-$victim"
  rows "frozen-$victim" 10
  kill -STOP "$(rank "frozen-$victim" $victim)"
  begun=$(date +%s)
  finish
  check "frozen" "$code" 5
  echo "  the job ended after $(($(date +%s) - begun)) s"
  sed -n 's/^error/  error/p' "$out/frozen-$victim.err"
  check "error lines that name rank $victim" "$(grep -c "^error: rank $victim " "$out/frozen-$victim.err")" 1
  sleep 1
  check "processes left" "$(left_over "frozen-$victim" | wc -l)" 0
done

echo "== a rank freezes for 5 s"
train thawed
rows thawed 10
process=$(rank thawed 1)
kill -STOP "$process"
sleep 5
kill -CONT "$process"
sleep 3
kill -USR1 "$process"
finish
check "it went on until it was asked to stop" "$code" 75
echo "$wrong wrong"
exit $((wrong > 0))
