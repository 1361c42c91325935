#!/usr/bin/env bash
# CPU throughput on this machine, one after the other: `convoy train` on 2 ranks and a PyTorch training step on 2
# threads, batch 128. Run it on a quiet machine.
#
# usage: results/cpu_peer.sh [NET...]    nets: simplecnn resnet20 [both]
# environment: CONVOY_BUILD [build], DATA (a folder of shards) [generated], PYTHON with PyTorch [/usr/bin/python3]
set -euo pipefail
[ $# -gt 0 ] || set -- simplecnn resnet20
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
convoy=${CONVOY_BUILD:-build}/app/convoy
[ -x "$convoy" ] || build_convoy "${CONVOY_BUILD:-build}" convoy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
data=${DATA:-$work/shards}
[ -e "$data" ] || "$convoy" data synth "$data" >"$work/log" </dev/null

for net; do
  steps=300
  [ "$net" = simplecnn ] && steps=1500
  say "$net"
  # the largest resident set of any rank: GNU time is not everywhere, so ask the kernel as it runs
  timeout 600 mpirun -n 2 "$convoy" train --backend cpu --config "jobs/configs/$net.conf" --data "$data" \
    --out "$work/$net" --batch 128 --epochs 100 --steps "$steps" --log-every 25 \
    --eval-every 0 --checkpoint-every 1000000 >"$work/log" 2>&1 </dev/null &
  job=$!
  peak=0
  while kill -0 "$job" 2>/dev/null; do
    for status in $(pgrep -f "$work/$net" | sed 's|.*|/proc/&/status|'); do
      now=$(awk '/^Name:/ { name = $2 } /^VmHWM:/ { if (name == "convoy") print $2 }' "$status" 2>/dev/null || true)
      [ "${now:-0}" -le "$peak" ] || peak=$now
    done
    sleep 1
  done
  wait "$job" || { tail -n 5 "$work/log" >&2; die 1 "the run failed (above)"; }
  awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "images_per_s") c = i; next } $c != "" { print $c }' \
    "$work/$net/loss.csv" | tail -n +4 | sort -g |
    awk -v net="$net" -v peak="$peak" '{ v[NR] = $1 }
      END { printf "convoy cpu %s ranks=2 bs=128: %.0f images/s, largest rank %.0f MiB\n", net, v[int((NR + 1) / 2)], peak / 1024 }'
  "${PYTHON:-/usr/bin/python3}" results/peers/cpu_step.py --net "$net" --bs 128 --threads 2 </dev/null
done
