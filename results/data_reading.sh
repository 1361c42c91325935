#!/usr/bin/env bash
# Makes all figures of results/data-reading in one call, about 5 minutes on two idle cores: reading 50,000 + 10,000 images
# from 5 + 1 shards at 1 and 2 ranks beside a plain read of the same bytes by as many processes; reading the metadata in a
# child process; `data check`; a 4.3 GB set streamed and in memory in turns, resnet20 at 2 ranks; peak memory.
#
# usage: results/data_reading.sh [OUT]          OUT: default results/data-reading
# environment: CONVOY_BUILD  the build folder (default build), ROUNDS (default 21), TURNS (default 3), WORK: a folder with
#              5 GB of room (default a temporary one, removed at the end)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-results/data-reading} build=${CONVOY_BUILD:-build} rounds=${ROUNDS:-21} turns=${TURNS:-3}
convoy=$PWD/$build/app/convoy bench=$PWD/$build/tests/bench_data
if [ -z "${WORK:-}" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
else
  work=$WORK
fi
mkdir -p "$out" "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
two=(mpirun --oversubscribe --bind-to none -np 2)

now() { date +%s.%N; }
say() { printf '\n== %s (load %s)\n' "$1" "$(cut -d' ' -f1-3 /proc/loadavg)"; }
machine() {
  date -u +%Y-%m-%dT%H:%MZ
  git log -1 --format='commit %h %s'
  "$convoy" --version
  sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1
  printf '%s processors, Linux %s, shared memory in large pages: %s\n' "$(nproc)" "$(uname -r)" \
    "$(cat /sys/kernel/mm/transparent_hugepage/shmem_enabled 2> /dev/null || echo unknown)"
}

reading() {
  [ -e "$work/cifar" ] || "$convoy" data synth "$work/cifar" --train 50000 --test 10000 --shards 5 > "$work/synth.log"
  for ranks in 1 2; do
    say "reading, $ranks ranks"
    mpirun --oversubscribe --bind-to none -np $ranks "$bench" "$work/cifar" "$rounds"
  done
  say "convoy data check, seconds"
  for _ in 1 2 3 4 5; do
    local begin
    begin=$(now)
    "$convoy" data check "$work/cifar" > /dev/null
    awk -v a="$begin" -v b="$(now)" 'BEGIN { printf "%.2f\n", b - a }'
  done
}

common=(--backend cpu --threads 1 --model resnet20 --batch 128 --epochs 1 --steps 60 --log-every 1 --deterministic --eval-every 0)
train() { # train NAME OPTION...: peak memory of each rank, seconds of training
  local name=$1
  shift
  rm -rf "${work:?}/$name"
  "${two[@]}" /usr/bin/time -f '%M kB peak' "$convoy" train --data "$work/big" --out "$work/$name" "${common[@]}" "$@" \
    > "$work/$name.log" 2>&1 || { cat "$work/$name.log"; exit 1; }
  grep 'kB peak' "$work/$name.log" | tr '\n' ' '
  # steps 11 to 60: the first ones also fill caches
  awk -F, -v name="$name" '$1 == 10 { a = $6 } $1 == 60 { printf "%s: %.1f images/s\n", name, 50 * 128 / ($6 - a) }' "$work/$name/loss.csv"
}
streaming() {
  [ -e "$work/big" ] || "$convoy" data synth "$work/big" --train 1400000 --test 1000 --shards 16 > "$work/synth.log"
  say "streaming 1,400,000 images of 32x32x3 (4.3 GB)"
  for ((turn = 0; turn < turns; turn++)); do
    train streamed --memory-limit 512 | tee -a "$work/rates"
    train held --memory-limit 8192 --shuffle chunk | tee -a "$work/rates"
  done
  sort "$work/rates" | awk '
    { split($0, part, /: | images/); kind = $0 ~ /streamed/ ? "streamed" : "held"; rate[kind, ++count[kind]] = part[2] }
    function median(kind, n, i, j, t) {
      n = count[kind]
      for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
        if (rate[kind, i] + 0 > rate[kind, j] + 0) { t = rate[kind, i]; rate[kind, i] = rate[kind, j]; rate[kind, j] = t }
      return rate[kind, int((n + 1) / 2)]
    }
    END { printf "medians: streamed %s, in memory %s images/s: %.0f %%\n", median("streamed"), median("held"), 100 * median("streamed") / median("held") }'
  for name in streamed held; do cut -d, -f1-4 "$work/$name/loss.csv" > "$work/$name.csv"; done
  diff "$work/streamed.csv" "$work/held.csv" && echo "the losses are the same in every digit"
  cp "$work/streamed/loss.csv" "$out/loss-streamed.csv"
  cp "$work/held/loss.csv" "$out/loss-in-memory.csv"
  say "commands that do not train, on the same set: peak memory"
  for command in "data info $work/big" "check --data $work/big"; do
    # shellcheck disable=SC2086
    /usr/bin/time -f "%M kB: ${command%% /*}" "$convoy" $command 2>&1 > /dev/null | tail -1
  done
}

: > "$work/rates"
{
  machine
  reading
  streaming
} 2>&1 | tee "$out/measure.log"
