#!/usr/bin/env bash
# `convoy bench`: a step on one rank and on two; scaling and prediction on two ranks and on four, their tables, plots and
# refusals; an error on one rank, and a rank that stops, end all; so does SIGTERM.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
small=(--backend cpu --model simplecnn --size 16 --batch 8 --steps 2 --threads 1)
plots=1
program gnuplot || plots=0

for count in 1 2; do
  ranks $count bench step "${small[@]}" --repeats 1
  expect 0 "step, np $count"
  grep -q "^step: " "$WORK/out.txt" || fail "step, np $count: no step" "$WORK/out.txt"
  grep -Eq "^in the step, ms: data [0-9.]+, forward [0-9.]+, backward [0-9.]+, exposed [0-9.]+, update [0-9.]+; together" \
    "$WORK/out.txt" || fail "step, np $count: no parts" "$WORK/out.txt"
done
[ "$(grep -c '^all-reduce ' "$WORK/out.txt")" -gt 1 ] || fail "step, np 2: no all-reduce" "$WORK/out.txt"
pass "bench step"

# files OUT NAME...: these and no others are there, none empty.
files() {
  local out=$1
  shift
  find "$out" -mindepth 1 -printf '%f\n' | sort | diff - <(printf '%s\n' "$@" | sort) || fail "other files in $out"
  for file in "$@"; do [ -s "$out/$file" ] || fail "$out/$file is empty"; done
}
# plotted OUT NAME: SVG and PNG are what their names say.
plotted() {
  [ $plots = 1 ] || return 0
  head -c 200 "$1/$2.svg" | grep -q '<svg' || grep -q '<svg' "$1/$2.svg" || fail "$2.svg is no SVG"
  [ "$(head -c 8 "$1/$2.png" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "$2.png is no PNG"
}
with_plots() { if [ $plots = 1 ]; then echo "$1.svg $1.png"; fi; }

ranks 2 bench scaling --out "$WORK/a/two" "${small[@]}" --windows 5
expect 0 "scaling, np 2"
# shellcheck disable=SC2046 # two names
files "$WORK/a/two" scaling.csv scaling.gp $(with_plots scaling)
plotted "$WORK/a/two" scaling
python3 - "$WORK/a/two/scaling.csv" << 'END' || fail "scaling.csv, np 2" "$WORK/a/two/scaling.csv"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert list(rows[0]) == ("mode,ranks,hosts,batch,windows,step_ms,step_ms_least,step_ms_lower,step_ms_upper,step_ms_most,"
    "data_ms,forward_ms,backward_ms,exposed_ms,update_ms,parts_ms,images_per_s,efficiency,model,precision").split(",")
assert [(r["mode"], r["ranks"], r["batch"]) for r in rows] == [
    ("strong", "1", "8"), ("strong", "2", "8"), ("weak", "1", "8"), ("weak", "2", "16")]
for r in rows:
    v = {k: float(r[k]) for k in r if k not in ("mode", "model", "precision")}
    assert 0 < v["step_ms_least"] <= v["step_ms_lower"] <= v["step_ms"] <= v["step_ms_upper"] <= v["step_ms_most"]
    parts = [v[p + "_ms"] for p in ("data", "forward", "backward", "exposed", "update")]
    assert min(parts) >= 0 and parts[1] > 0 and parts[2] > 0 and parts[4] > 0
    assert abs(sum(parts) / v["parts_ms"] - 1) < 1e-6
    assert abs(v["images_per_s"] * v["step_ms"] / v["batch"] / 1000 - 1) < 1e-6
    base = float(rows[0]["images_per_s"])
    assert abs(v["efficiency"] * base * v["ranks"] / v["images_per_s"] - 1) < 1e-6
    assert v["windows"] == 5 and v["hosts"] == 1 and r["model"] == "simplecnn" and r["precision"] == "fp32"
    assert parts[3] > 0.001 if v["ranks"] > 1 else parts[3] < 0.2 * v["parts_ms"]
assert rows[0]["step_ms"] == rows[2]["step_ms"]
END
pass "scaling on two ranks"

ranks 4 bench scaling --out "$WORK/a/four" "${small[@]}" --windows 5 --ranks 2,3,4 --mode weak --place spread
expect 0 "scaling, np 4"
[ "$(cut -d, -f1-4 "$WORK/a/four/scaling.csv" | tail -n +2 | paste -sd' ')" = "weak,2,1,16 weak,3,1,24 weak,4,1,32" ] ||
  fail "scaling.csv, np 4" "$WORK/a/four/scaling.csv"
pass "scaling on two, three and four of four ranks"

counts=(2 4)
[ -z "${CONVOY_SANITIZED:-}" ] || counts=(2)
for count in "${counts[@]}"; do
  ranks "$count" bench predict --out "$WORK/predict$count" "${small[@]}" --windows 5 --host-ranks 8 \
    --inter-latency-us 10 --inter-bandwidth-gbs 25
  expect 0 "predict, np $count"
  # shellcheck disable=SC2046
  files "$WORK/predict$count" allreduce.csv predict.csv predict.gp $(with_plots predict)
  plotted "$WORK/predict$count" predict
  python3 - "$WORK/predict$count" "$count" "$WORK/out.txt" << 'END' || fail "predict, np $count" "$WORK/predict$count/predict.csv" "$WORK/out.txt"
import csv, sys
folder, count, text = sys.argv[1], int(sys.argv[2]), open(sys.argv[3]).read()
rows = list(csv.DictReader(open(folder + "/predict.csv")))
assert list(rows[0]) == ("algorithm,ranks,hosts,step_ms,allreduce_ms,exposed_ms,images_per_s,efficiency,measured_step_ms,"
    "measured_efficiency,error,model,precision").split(",")
numbers = [2 ** i for i in range(13)]
assert [(r["algorithm"], int(r["ranks"])) for r in rows] == [
    (a, n) for a in ("ring", "tree", "hierarchical") for n in numbers]
alone = float(rows[0]["step_ms"])
for r in rows:
    n, step, exposed = int(r["ranks"]), float(r["step_ms"]), float(r["exposed_ms"])
    assert int(r["hosts"]) == (n + 7) // 8
    assert abs(step - alone - exposed) < 1e-6 * step and abs(float(r["efficiency"]) - alone / step) < 1e-6
    assert exposed == float(r["allreduce_ms"])  # the CPU's sums run beside nothing
    assert (r["measured_step_ms"] != "") == (n <= count)
    if n <= count:
        assert abs(float(r["error"]) - (step / float(r["measured_step_ms"]) - 1)) < 1e-6
        assert n == 1 or "(error %+.1f %%)" % (100 * float(r["error"])) in text
ring = {int(r["ranks"]): r for r in rows[:13]}
assert float(ring[4096]["allreduce_ms"]) >= 2 * 4095 * 0.010  # the latency that was given
sums = list(csv.DictReader(open(folder + "/allreduce.csv")))
assert list(sums[0]) == "network,ranks,bytes,ms,fit_ms,bus_gb_per_s".split(",")
assert len(sums) >= 12 and all(s["network"] == "within" and int(s["ranks"]) == count for s in sums)
assert all(abs(float(s["bus_gb_per_s"]) - 2 * (count - 1) / count * float(s["bytes"]) / float(s["ms"]) * 1e-6)
           < 1e-6 * float(s["bus_gb_per_s"]) and float(s["fit_ms"]) >= 0 for s in sums)
END
  grep -q '^between hosts: 10.00 us, 25.00 GB/s (given)' "$WORK/out.txt" || fail "predict: the network given" "$WORK/out.txt"
  pass "prediction on $count ranks"
done

# One rank with both networks given; without gnuplot the tables and the script are there, and it is said.
code=0
mkdir "$WORK/bin"
ln -s "$(command -v mpirun)" "$WORK/bin/mpirun"
PATH=$WORK/bin "$CONVOY" bench predict --out "$WORK/alone" "${small[@]}" --windows 5 --host-ranks 4 --intra-latency-us 1 \
  --intra-bandwidth-gbs 100 --inter-latency-us 5 --inter-bandwidth-gbs 50 > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 0 "predict, np 1"
files "$WORK/alone" allreduce.csv predict.csv predict.gp
grep -q '^warning: no plot: a picture needs gnuplot, which is not in PATH' "$WORK/err.txt" || fail "a missing gnuplot is not said" "$WORK/err.txt"
pass "prediction on one rank; no gnuplot"

# ---- refusals: exit code 2, one line, and the folder as it was ----
mkdir "$WORK/old"
echo mode,ranks,hosts,batch,kept > "$WORK/old/scaling.csv"
echo algorithm,ranks,hosts,step_ms,kept > "$WORK/old/predict.csv"
cp -r "$WORK/old" "$WORK/same"
refused() { # refused RANKS PATTERN ARGUMENT...
  local count=$1 pattern=$2
  shift 2
  ranks "$count" bench "$@"
  expect 2 "$*"
  one_error "$*"
  grep -q -e "$pattern" "$WORK/err.txt" || fail "$*: no '$pattern'" "$WORK/err.txt"
  [ ! -e "$WORK/none" ] || fail "$*: something was made"
  diff -r "$WORK/old" "$WORK/same" || fail "$*: the folder was touched"
}
refused 1 "did you mean 'bench scaling'" scalin
refused 1 "no command" # none
refused 1 "needs --out" scaling
refused 1 "windows" scaling --out "$WORK/none" --windows 4
refused 1 "batch" scaling --out "$WORK/none" --batch 0
for bad in 0 1,1 2,1 1,x '1,' ',1' -1 1.5 99999999999999999999; do
  refused 1 "ranks" scaling --out "$WORK/none" "--ranks=$bad"
done
refused 2 "the job has 2 ranks" scaling --out "$WORK/none" "${small[@]}" --ranks 1,2,3
refused 2 "larger --batch" scaling --out "$WORK/none" "${small[@]}" --batch 1
refused 2 "nosuch" scaling --out "$WORK/old" --overwrite --backend cpu --model nosuch
refused 2 "nosuch" predict --out "$WORK/none/of/these" --backend cpu --model nosuch
refused 2 "scaling.csv is there" scaling --out "$WORK/old" "${small[@]}"
refused 2 "predict.csv is there" predict --out "$WORK/old" "${small[@]}"
refused 2 "go together" predict --out "$WORK/none" "${small[@]}" --inter-latency-us 3
refused 1 "cannot measure sums\|nobody to sum with" predict --out "$WORK/none" "${small[@]}"
refused 2 "inter-bandwidth-gbs" predict --out "$WORK/none" --inter-latency-us 1 --inter-bandwidth-gbs 0
pass "refusals leave the folder as it was"

# ---- one rank's own error, and a rank that stops ----
two=(mpirun --oversubscribe --bind-to none)
for command in step "scaling --out $WORK/none" "predict --out $WORK/none"; do
  code=0
  # shellcheck disable=SC2086 # a command and its option
  timeout 60 "${two[@]}" -n 1 "$CONVOY" bench $command "${small[@]}" : -n 1 "$CONVOY" bench $command "${small[@]}" --model nosuch \
    > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  expect 2 "$command: an error on rank 1 only"
  one_error "$command: an error on rank 1 only"
  [ ! -e "$WORK/none" ] || fail "$command: a folder is left"
done
pass "an error on one rank ends all"

plain "a rank that stops, SIGTERM" || exit 0
# The second rank of two stops for good once it measures.
# shellcheck disable=SC2016 # the inner shell expands them
"${two[@]}" -n 1 "$CONVOY" bench step "${small[@]}" --steps 1000000 --comm-timeout 2 : \
  -n 1 bash -c 'echo $$ > "$0"; exec "$@"' "$WORK/pid" "$CONVOY" bench step "${small[@]}" --steps 1000000 --comm-timeout 2 \
  > "$WORK/out.txt" 2> "$WORK/err.txt" &
launcher=$!
for _ in $(seq 300); do grep -q '^parts ' "$WORK/out.txt" 2> /dev/null && break; sleep 0.1; done
kill -STOP "$(cat "$WORK/pid")"
code=0
wait $launcher || code=$?
kill -KILL "$(cat "$WORK/pid")" 2> /dev/null
expect 5 "a rank that stops"
one_error "a rank that stops"
grep -q 'rank 1 ' "$WORK/err.txt" || fail "the rank that stopped is not named" "$WORK/err.txt"
pass "a rank that stops ends all"

# Nothing of it is worth a stop in order: one signal ends it.
"$CONVOY" bench step "${small[@]}" --steps 1000000 > "$WORK/out.txt" 2> "$WORK/err.txt" &
launcher=$!
for _ in $(seq 300); do grep -q '^parts ' "$WORK/out.txt" 2> /dev/null && break; sleep 0.1; done
kill -TERM $launcher
for _ in $(seq 100); do kill -0 $launcher 2> /dev/null || break; sleep 0.1; done
kill -KILL $launcher 2> /dev/null
code=0
wait $launcher || code=$?
expect 143 "SIGTERM"
pass "one SIGTERM ends a measurement"

# Ranks that have nothing to do sleep: less than half of the time that passes.
# shellcheck disable=SC2016
"${two[@]}" -n 1 "$CONVOY" bench scaling --out "$WORK/rest" "${small[@]}" --steps 400 --ranks 1 --mode weak : \
  -n 1 bash -c 'TIMEFORMAT="%R %U %S"; { time "$@" > /dev/null 2>&1; } 2> "$0"' "$WORK/times" \
  "$CONVOY" bench scaling --out "$WORK/rest" "${small[@]}" --steps 400 --ranks 1 --mode weak > "$WORK/out.txt" 2>&1 ||
  fail "scaling with a rank that rests" "$WORK/out.txt"
awk '{ exit !($1 > 0 && $2 + $3 < 0.5 * $1) }' "$WORK/times" || fail "a resting rank used the CPU: real, user, system" "$WORK/times"
pass "resting ranks sleep: $(cat "$WORK/times") s"
