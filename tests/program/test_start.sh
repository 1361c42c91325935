#!/usr/bin/env bash
# A start: its parts are told once and add up to the time of the first step; ranks share what they chose by timing.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
data=$WORK/data
set_of "$data" 256 64

# tell_parts WHAT WALL [MOST]: the last line says where the time went, in parts that add up to no more than WALL seconds, of
# which the steps had at most MOST.
tell_parts() {
  tail -n 1 "$WORK/out.txt" | awk -v wall="$2" -v most="${3:-$2}" '{
    n = split($0, word, /[ ,;]+/)
    for (i = 1; i < n; i++) {
      if (word[i + 1] !~ /^[0-9.]+$/) continue
      if (word[i + 3] == "since") total = word[i + 1]; else { sum += word[i + 1]; part[word[i]] = word[i + 1]; parts++ }
    }
    d = total - sum
    good = $1 == "time:" && parts == 7 && d < 0.045 && d > -0.045 && total > 0 && total <= wall + 0.05
    exit !(good && part["start"] > 0 && part["steps"] <= most && part["rest"] < 0.2)
  }' || fail "$1: the last line does not say where its $2 s went" "$WORK/out.txt"
}

for count in 1 2; do
  begin=$(date +%s.%N)
  ranks "$count" train --data "$data" --out "$WORK/run$count" --backend cpu --threads 1 --epochs 2 --steps 3
  wall=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')
  expect 0 "a run on $count ranks"
  [ "$(grep -c '^start: mpi ' "$WORK/out.txt")" = 1 ] || fail "not one line about the start" "$WORK/out.txt"
  for part in mpi data communicator device plans upload state capture step; do
    grep -q "^start: .*\b$part [0-9]" "$WORK/out.txt" || fail "the start does not name its part '$part'" "$WORK/out.txt"
  done
  grep '^start: ' "$WORK/out.txt" | awk -v wall="$wall" '{
    n = split($0, part, /[ ,]+/)
    for (i = 1; i < n; i++)
      if (part[i + 1] ~ /^[0-9.]+$/) { if (part[i] == "at") total = part[i + 1]; else sum += part[i + 1] }
    d = total - sum
    exit !(total > 0 && total <= wall + 0.05 && d < 0.06 && d > -0.06)
  }' || fail "the parts do not add up, or to more than the $wall s that the run took" "$WORK/out.txt"
  grep -q '"start_seconds":[[:space:]]*0*[1-9.]' "$WORK/run$count/run.json" || fail "run.json has no start_seconds" "$WORK/run$count/run.json"
  tell_parts "a run on $count ranks" "$wall"
done
grep -q '^start: ' "$WORK/run2/loss.csv" && fail "the start is in a log"
pass "the start's parts on 1 and 2 ranks"

# One step, which takes long: it belongs to the start alone.
begin=$(date +%s.%N)
ranks 1 train --data "$data" --out "$WORK/one" --backend cpu --threads 1 --model resnet20 --batch 128 --steps 1
expect 0 "a run of one step"
tell_parts "a run of one step" "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')" 0.1
pass "the first step is in the start alone"

ranks 1 train --data "$data" --out "$WORK/run1" --resume --backend cpu --threads 1 --epochs 2
expect 0 "the rest of a run"
grep -q '^start: ' "$WORK/out.txt" || fail "nothing about a resumed run's start" "$WORK/out.txt"
ranks 1 train --data "$data" --out "$WORK/run1" --resume --backend cpu --threads 1 --epochs 2
expect 0 "a complete run"
grep -q '^start: ' "$WORK/out.txt" && fail "a run that makes no step tells about its start" "$WORK/out.txt"
pass "a resumed run's start"

suite=$(dirname "$CONVOY")/../tests/test_plan_cache
CONVOY=$suite ranks 3
expect 0 "the suite of plan files on 3 ranks"
pass "three ranks run the plans of one"

tried() { # tried RANKS: the components for messages that Open MPI tries there
  export OMPI_MCA_pml_base_verbose=10
  ranks "$1" check --data "$data"
  unset OMPI_MCA_pml_base_verbose
  expect 0 "a check on $1 ranks"
  cat "$WORK/out.txt" "$WORK/err.txt" | sed -n 's/.*select: initializing pml component //p' | sort -u | tr '\n' ' '
}
unset OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_mtl
for count in 1 2; do
  [ "$(tried "$count")" = "ob1 " ] || fail "$count ranks of one host try other transports than shared memory: $(tried "$count")"
done
all=$(export OMPI_MCA_pml=^v && tried 2)
if [ "$(ompi_info | grep -cE 'MCA pml: (cm|ucx|ob1) ')" -lt 2 ]; then
  leave_out "the user's choice of transports: ob1 alone is built"
else
  [ "$all" != "ob1 " ] || fail "the user's choice of transports is not kept: $all"
fi
pass "ranks of one host look for no network, unless told to"
