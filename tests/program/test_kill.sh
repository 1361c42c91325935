#!/usr/bin/env bash
# A run that is killed by SIGKILL again and again at random moments, mpirun or a rank, and resumed each time: loss.csv
# is readable at every moment, and logs and weights end as those of an undisturbed run. Then a newest checkpoint that
# is damaged in eight ways. CONVOY_TEST_KILLS: how many kills (50), CONVOY_TEST_SEED: of their moments.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/program/faults.sh
. "$(dirname "$0")/faults.sh"

kills=${CONVOY_TEST_KILLS:-${CONVOY_SANITIZED:+20}}
kills=${kills:-50}
RANDOM=${CONVOY_TEST_SEED:-1}
data=$WORK/data
set_of "$data" 200 40 # batch 40: 5 steps an epoch
common=(--data "$data" --backend cpu --threads 1 --deterministic --batch 40 --augment "flip,crop" --log-every 1 --eval-every 3
  --comm-timeout 20)

# readable OUT: loss.csv holds whole rows of rising steps under one header, but for the last, which may be torn.
readable() {
  [ -f "$1/loss.csv" ] || return 0
  awk -F, 'NR == 1 { if ($0 != "step,epoch,loss,lr,images_per_s,seconds" && !torn()) bad = 1; next }
    NF != 6 || $1 !~ /^[0-9]+$/ || $1 <= last || $3 + 0 <= 0 { wrong[NR] = $0 }
    { last = $1 }
    END { delete wrong[NR]; for (row in wrong) { print row ": " wrong[row]; bad = 1 } exit bad }
    function torn() { return NR == 1 && index("step,epoch,loss,lr,images_per_s,seconds", $0) == 1 }' "$1/loss.csv"
}

# same_end WHOLE OUT STEP WHAT
same_end() {
  diff <(no_times "$1/loss.csv") <(no_times "$2/loss.csv") > "$WORK/diff.txt" || fail "$4: loss.csv differs" "$WORK/diff.txt"
  diff <(cut -d, -f1-6 "$1/epochs.csv") <(cut -d, -f1-6 "$2/epochs.csv") > "$WORK/diff.txt" || fail "$4: epochs.csv differs" "$WORK/diff.txt"
  same_arrays "$1/checkpoints/step-$3.h5" "$2/checkpoints/step-$3.h5" > "$WORK/diff.txt" 2>&1 || fail "$4: the weights differ" "$WORK/diff.txt"
}

# pause MICROSECONDS
pause() { sleep "$(printf '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000)))"; }

# One kill: somewhere in the launch, or a moment after the steps have begun.
kill_once() { # RANKS OUT
  local i victim
  if [ $((RANDOM % 4)) != 0 ]; then
    for i in $(seq 3000); do
      grep -qs "precision:" "$WORK/out.txt" && break
      kill -0 "$runner" 2> /dev/null || break
      sleep 0.01
    done
  fi
  pause $((RANDOM * 32768 % 400000 + RANDOM % 1000))
  victim=$runner
  [ $((RANDOM % 3)) = 0 ] || victim=$(rank_of "$2" $((RANDOM % $1)))
  kill -KILL "${victim:-$runner}" 2> /dev/null && landed=$((landed + 1))
  finish 2> /dev/null
  case $code in
    0 | 5 | 137) ;;
    *) fail "exit code $code after a kill, look $i" "$WORK/out.txt" "$WORK/err.txt" ;;
  esac
  none_left "$2" "a kill"
  readable "$2" > "$WORK/diff.txt" || fail "loss.csv after a kill" "$WORK/diff.txt" "$2/loss.csv"
}

# Rounds of up to ten kills, each with its own save interval and number of ranks.
killed=0 round=0 landed=0
while [ $killed -lt "$kills" ]; do
  every=$((round % 4 + 1)) count=$((round % 2 + 1)) before=$killed
  options=("${common[@]}" --epochs 60 --checkpoint-every "$every")
  [ $((round % 4)) = 2 ] && options=("${common[@]}" --epochs 60 --checkpoint-minutes 0.001) every=some
  whole=$WORK/whole-$count out=$WORK/killed-$round
  if [ ! -d "$whole" ]; then
    ranks "$count" train --out "$whole" "${common[@]}" --epochs 60 --checkpoint-every 50
    expect 0 "the undisturbed run"
  fi
  code=1
  while [ $killed -lt "$kills" ] && [ $((killed - before)) -lt 10 ] && [ "$code" != 0 ]; do
    start "$count" train --out "$out" "${options[@]}" --resume
    kill_once "$count" "$out"
    killed=$((killed + 1))
  done
  steps=$(tail -1 "$out/loss.csv" 2> /dev/null | cut -d, -f1)
  ranks "$count" train --out "$out" "${options[@]}" --resume
  [ "$code" = 0 ] || fail "round $round: the last resume: exit code $code" "$WORK/err.txt"
  same_end "$whole" "$out" 00000300 "round $round"
  pass "np $count, saves every $every steps: $((killed - before)) kills up to step ${steps:-0}, the end is bit for bit the same"
  round=$((round + 1))
done
[ $landed -ge $((kills * 3 / 4)) ] || fail "only $landed of $kills kills hit a running process"
pass "$landed of $kills kills hit a running process"

# The newest checkpoint is damaged: an older one is used, with a warning that names it.
whole=$WORK/base
ranks 1 train --out "$whole" "${common[@]}" --epochs 4 --checkpoint-every 2 --steps 12
expect 0 "a run to damage"
ranks 1 train --out "$WORK/end" "${common[@]}" --epochs 4
expect 0 "the undisturbed run"
damage() { # KIND FILE
  local size
  size=$(stat -c %s "$2")
  case $1 in
    empty) : > "$2" ;;
    short) truncate -s -1 "$2" ;;
    half) truncate -s $((size / 2)) "$2" ;;
    long) echo x >> "$2" ;;
    bit) printf '\x55' | dd of="$2" bs=1 seek=$((size / 2)) conv=notrunc status=none ;;
    zeros) dd if=/dev/zero of="$2" bs=1024 seek=100 count=16 conv=notrunc status=none ;;
    header) printf 'X' | dd of="$2" bs=1 seek=3 conv=notrunc status=none ;;
    text) echo "not a checkpoint" > "$2" ;;
  esac
}
for kind in empty short half long bit zeros header text; do
  out=$WORK/damaged-$kind
  cp -r "$whole" "$out"
  rm -f "$out/checkpoints/best.h5"
  damage $kind "$out/checkpoints/step-00000012.h5"
  cp -r "$out" "$out-all"
  ranks 1 train --out "$out" "${common[@]}" --epochs 4 --resume
  expect 0 "$kind"
  grep -q '^warning: .*step-00000012.h5' "$WORK/err.txt" || fail "$kind: no warning names the file" "$WORK/err.txt"
  grep -q 'resuming: .*step-00000010.h5' "$WORK/out.txt" || fail "$kind: not resumed from step 10" "$WORK/out.txt"
  same_end "$WORK/end" "$out" 00000020 "$kind"
  for file in "$out-all"/checkpoints/*.h5; do damage $kind "$file"; done
  find "$out-all" -type f -exec cksum {} + | sort > "$WORK/before.txt"
  ranks 1 train --out "$out-all" "${common[@]}" --epochs 4 --resume
  expect 4 "$kind, all of them"
  one_error "$kind, all of them"
  find "$out-all" -type f -exec cksum {} + | sort > "$WORK/after.txt"
  cmp -s "$WORK/before.txt" "$WORK/after.txt" || fail "$kind, all of them: something was changed" "$WORK/before.txt" "$WORK/after.txt"
  pass "damage '$kind': an older checkpoint is used; if all are damaged exit 4, nothing touched"
done
