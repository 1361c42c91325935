#!/usr/bin/env bash
# Ranks that freeze, die or fail alone: the job ends within --comm-timeout with one line that names the rank.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/program/faults.sh
. "$(dirname "$0")/faults.sh"

data=$WORK/data
set_of "$data" 2000 100
limit=3
run() { # RANKS OUT OPTION...
  start "$1" train --data "$data" --out "$2" --backend cpu --threads 1 --batch 60 --epochs 1000 --log-every 2 \
    --comm-timeout $limit "${@:3}"
}

for victim in 1 0 2; do
  out=$WORK/freeze-$victim
  run 3 "$out"
  rows_in "$out" 3
  kill -STOP "$(rank_of "$out" $victim)"
  before=$(date +%s)
  finish
  took=$(($(date +%s) - before))
  expect 5 "rank $victim frozen"
  one_error "rank $victim frozen"
  grep -Eq "^error: rank $victim on host $(hostname) is silent .*last known step was [0-9]+" "$WORK/err.txt" ||
    fail "rank $victim frozen: not named" "$WORK/err.txt"
  [ $took -le $((limit + 10)) ] || fail "rank $victim frozen: the job took $took s to end"
  none_left "$out" "rank $victim frozen"
  pass "rank $victim frozen: exit 5 after $took s, named, no process left"
done

# A rank whose device cannot be opened tells why; the others do not wait in it for the communicator.
if plain "the rank without an engine, which is preloaded"; then
  shim=$(readlink -f "$(dirname "$CONVOY")/../tests/fail_engine.so")
  for command in train check "bench step"; do
    options=(--backend cpu)
    [ "$command" = check ] || options+=(--init-timeout 20)
    [ "$command" != train ] || options+=(--data "$data" --out "$WORK/engine")
    code=0
    # shellcheck disable=SC2086
    "${LAUNCH[@]}" 3 -x LD_PRELOAD="$shim" -x FAIL_RANK=1 "$CONVOY" $command "${options[@]}" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
    if [ "$command" = check ]; then
      expect 2 "$command without an engine on rank 1"
      grep -q '^fail  device  .*rank 1, .*oneDNN: no CPU engine' "$WORK/out.txt" || fail "$command: the engine" "$WORK/out.txt"
    else
      expect 1 "$command without an engine on rank 1"
      one_error "$command without an engine on rank 1"
      grep -q '^error: oneDNN: no CPU engine' "$WORK/err.txt" || fail "$command: the engine" "$WORK/err.txt"
    fi
  done
  pass "an engine that one rank cannot have: said by it, all end"
fi

# All ranks beat, but one stands still: it is told from those that wait for it.
shim=$(dirname "$CONVOY")/../tests/stand_still.so
if plain "the rank that stands still, which is preloaded"; then
  out=$WORK/still
  before=$(date +%s)
  code=0
  "${LAUNCH[@]}" 3 -x LD_PRELOAD="$(readlink -f "$shim")" -x STAND_RANK=2 -x STAND_AT=200 "$CONVOY" train --data "$data" --out "$out" \
    --backend cpu --threads 1 --batch 60 --epochs 1000 --comm-timeout $limit --init-timeout $limit > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  took=$(($(date +%s) - before))
  expect 5 "rank 2 stands still"
  one_error "rank 2 stands still"
  grep -Eq "^error: no rank has moved for [0-9.]+ s; rank 2 on host $(hostname) holds the others up: it is at a standstill in step [0-9]+" "$WORK/err.txt" ||
    fail "rank 2 stands still: not named" "$WORK/err.txt"
  [ $took -le $((limit + 30)) ] || fail "rank 2 stands still: the job took $took s to end"
  none_left "$out" "rank 2 stands still"
  pass "rank 2 stands still while all beat: exit 5, named"
fi

out=$WORK/thaw
run 3 "$out" --steps 400
rows_in "$out" 3
pid=$(rank_of "$out" 1)
root=$(rank_of "$out" 0)
for process in $pid $root; do
  kill -STOP "$process"
  sleep 1.5
  kill -CONT "$process"
  sleep 0.5
done
# All at once for longer than the limit, as a suspended job is: nobody is to blame.
for process in $(processes_of "$out"); do kill -STOP "$process"; done
sleep $((limit + 2))
for process in $(processes_of "$out"); do kill -CONT "$process"; done
finish
expect 0 "frozen for less than the limit, and a suspended job"
pass "frozen for less than the limit, and a suspended job: the run goes on"

# A killed rank. mpirun ends the others by itself; the ranks that it does not reach end too.
out=$WORK/kill
run 3 "$out"
rows_in "$out" 3
readers=$(for process in $(processes_of "$out"); do pgrep -P "$process"; done)
[ "$(wc -w <<< "$readers")" = 3 ] || fail "not one reader a rank: $readers"
kill -KILL "$(rank_of "$out" 1)"
finish
[ "$code" = 137 ] || [ "$code" = 5 ] || fail "rank 1 killed: exit code $code" "$WORK/err.txt"
none_left "$out" "rank 1 killed"
for reader in $readers; do [ "$(readlink "/proc/$reader/exe")" != "$CONVOY" ] || fail "rank 1 killed: its reader $reader lives on"; done
pass "rank 1 killed: exit $code, no process left"

# One that is frozen before the watchdog runs: --init-timeout.
for command in train eval; do
  out=$WORK/early-$command
  if [ $command = train ]; then
    run 2 "$out" --init-timeout 3
  else
    cp -r "$WORK/thaw" "$out"
    start 2 eval --checkpoint "$out" --data "$data" --backend cpu --init-timeout 3
  fi
  for _ in $(seq 400); do
    pid=$(rank_of "$out" 1)
    [ -n "$pid" ] && break
  done
  kill -STOP "$pid"
  before=$(date +%s)
  finish
  took=$(($(date +%s) - before))
  expect 5 "$command: frozen at the start"
  [ $took -le 20 ] || fail "$command: frozen at the start: the job took $took s to end"
  none_left "$out" "$command: frozen at the start"
  pass "$command: rank 1 frozen at the start: exit $code"
done

# A host whose CPU lacks what another's has: the rank that cannot is named, nobody waits for it.
cat > "$WORK/older.sh" << 'EOF'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export ONEDNN_MAX_CPU_ISA=AVX2
exec "$@"
EOF
chmod +x "$WORK/older.sh"
code=0
"${LAUNCH[@]}" 3 "$WORK/older.sh" "$CONVOY" train --data "$data" --out "$WORK/older" --backend cpu --threads 1 --precision bf16 \
  --comm-timeout $limit > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "a rank without bf16"
one_error "a rank without bf16"
grep -q '^error: .*bf16 is not available on this CPU' "$WORK/err.txt" || fail "a rank without bf16" "$WORK/err.txt"
pass "a precision that one rank's CPU lacks ends the job: exit 2"

# An error of one rank only: its part of the data goes away.
out=$WORK/alone
cat > "$WORK/small.sh" << EOF
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" = 1 ] && cd "$WORK/nowhere-at-all"
exec "\$@"
EOF
mkdir "$WORK/nowhere-at-all" "$WORK/here"
mv "$data" "$WORK/here/data"
chmod +x "$WORK/small.sh"
code=0
(cd "$WORK/here" && "${LAUNCH[@]}" 3 "$WORK/small.sh" "$CONVOY" train --data data --out "$out" --backend cpu --threads 1 \
  --comm-timeout $limit) > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "rank 1 cannot read the data"
one_error "rank 1 cannot read the data"
[ -e "$out" ] && fail "rank 1 cannot read the data: something was written"
none_left "$out" "rank 1 cannot read the data"
pass "rank 1 alone cannot read the data: exit 2, one line"

# A replica that differs: named, at the start and at a save; the step is not saved.
mv "$WORK/here/data" "$data"
for wish in 1 2@20 1@21; do
  out=$WORK/replica-$wish
  export CONVOY_TEST_PERTURB_RANK=$wish
  due=(--epochs 1 --checkpoint-every 10)
  [ $wish = 1@21 ] && due=(--epochs 200 --checkpoint-minutes 0.003 --eval-every 0) # at steps that only rank 0's clock knows
  ranks 3 train --data "$data" --out "$out" --backend cpu --threads 1 --batch 60 "${due[@]}"
  unset CONVOY_TEST_PERTURB_RANK
  expect 5 "rank ${wish%@*} differs"
  one_error "rank ${wish%@*} differs"
  grep -q "^error: replica mismatch.*rank ${wish%@*} on host $(hostname)" "$WORK/err.txt" || fail "rank ${wish%@*} differs: not named" "$WORK/err.txt"
  if [ "$wish" = 1 ]; then
    [ -e "$out" ] && fail "a mismatch at the start: something was written"
  elif [ "$wish" = 1@21 ]; then
    grep -q "^error: replica mismatch after step [0-9][0-9]*: rank 1" "$WORK/err.txt" || fail "by minutes: not named" "$WORK/err.txt"
    [ "$(tail -1 "$out/loss.csv" | cut -d, -f1)" -lt 6000 ] || fail "by minutes: found at the end of the run only"
  else
    [ "$(ls "$out/checkpoints")" = step-00000010.h5 ] || fail "a mismatch at step 20: not just step 10 is there: $(ls "$out/checkpoints")"
  fi
  pass "rank ${wish%@*} holds other parameters: exit 5, named"
done

# Values that are not finite although the loss still is: no checkpoint holds them.
for count in 1 2; do
  out=$WORK/infinite-$count
  ranks "$count" train --data "$data" --out "$out" --backend cpu --threads 1 --batch 60 --epochs 1 --steps 1 --optimizer sgd \
    --lr 3e38 --weight-decay 1000
  expect 3 "np $count: infinite parameters"
  one_error "np $count: infinite parameters"
  [ -z "$(ls "$out/checkpoints" 2> /dev/null)" ] || fail "np $count: infinite parameters were saved"
  pass "np $count: parameters that are not finite are not saved: exit 3"
done
