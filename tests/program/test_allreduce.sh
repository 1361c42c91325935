#!/usr/bin/env bash
# --allreduce bf16: the sums themselves on 1 to 4 ranks, and what training makes of them.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
data=$WORK/data program=$CONVOY
suite=$(dirname "$CONVOY")/../tests/test_allreduce_on_backend
for count in 2 3 4; do
  CONVOY=$suite ranks $count cpu
  expect 0 "the suite of sums on $count ranks"
done
CONVOY=$program
pass "sums on 2, 3 and 4 ranks"

set_of "$data" 512 64
train() { # RANKS NAME OPTION...
  local count=$1 name=$2
  shift 2
  ranks "$count" train --data "$data" --out "$WORK/$name" --backend cpu --threads 1 --log-every 1 --epochs 2 "$@"
}
losses() { cut -d, -f1-3 "$WORK/$1/loss.csv"; }

for name in fp32 bf16 again; do
  train 2 $name --deterministic --allreduce ${name/again/bf16}
  expect 0 "a run with gradients in $name"
done
cmp -s <(losses fp32) <(losses bf16) && fail "--allreduce bf16 changes no loss" "$WORK/bf16/loss.csv"
cmp -s <(losses bf16) <(losses again) || fail "--allreduce bf16 --deterministic does not repeat" "$WORK/bf16/loss.csv" "$WORK/again/loss.csv"
close_losses "$WORK/fp32/loss.csv" "$WORK/bf16/loss.csv" 0.02 || fail "bf16 gradients are far from fp32 ones" "$WORK/fp32/loss.csv" "$WORK/bf16/loss.csv"
grep -q '"allreduce":[[:space:]]*"bf16"' "$WORK/bf16/run.json" || fail "run.json does not say how gradients were summed"
# The first step's loss and count of correct predictions do not pass through bf16.
cmp -s <(losses fp32 | sed -n 2p) <(losses bf16 | sed -n 2p) || fail "the first loss differs" "$WORK/fp32/loss.csv" "$WORK/bf16/loss.csv"
pass "two ranks: close to fp32, repeatable"

train 1 one-fp32 --deterministic
train 1 one-bf16 --deterministic --allreduce bf16
cmp -s <(losses one-fp32) <(losses one-bf16) || fail "one rank, which sums nothing, rounds" "$WORK/one-fp32/loss.csv" "$WORK/one-bf16/loss.csv"
train 2 lanes --lanes 2 --allreduce bf16
expect 2 "--allreduce bf16 with --lanes"
one_error "--allreduce bf16 with --lanes"
grep -q -- '--allreduce bf16 .*--lanes 2' "$WORK/err.txt" || fail "the refusal does not name both" "$WORK/err.txt"
pass "one rank is not touched; not with --lanes"

train 2 half --deterministic --allreduce bf16 --steps 3
expect 0 "half a run"
train 2 half --deterministic --allreduce bf16 --resume
expect 0 "its rest"
cmp -s <(losses bf16) <(losses half) || fail "a resumed run differs" "$WORK/bf16/loss.csv" "$WORK/half/loss.csv"
train 2 other --deterministic --allreduce bf16 --steps 3
train 2 other --deterministic --resume
grep -q 'warning: .*allreduce' "$WORK/err.txt" || fail "no warning of another --allreduce" "$WORK/err.txt"
pass "resume"
