#!/usr/bin/env bash
# What a person sees of a run: on a terminal (tmux, 80 and 40 columns, resized) one live line that fits and vanishes, also
# after Ctrl-C and an error; in a file plain lines from the start, without carriage returns or escape codes; --quiet,
# --verbose; epoch lines with the ranks' step times.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
data=$WORK/data
set_of "$data" 640 64
options=(train --data "$data" --backend cpu --threads 1 --batch 32)
set_of "$WORK/long" 6400 64

# ---- in a file ----
first_line() { # how many milliseconds after the start it comes, in $spent
  local begin line
  rm -rf "$WORK/pipe-run"
  begin=$(date +%s%N)
  "$CONVOY" "${options[@]}" --out "$WORK/pipe-run" --epochs 3 > "$WORK/pipe" 2> "$WORK/err.txt" &
  { IFS= read -r line; spent=$((($(date +%s%N) - begin) / 1000000)); cat > "$WORK/rest.txt"; } < "$WORK/pipe"
  wait $! || fail "a run into a pipe" "$WORK/err.txt"
  [ -n "$line" ] || fail "an empty first line" "$WORK/rest.txt"
}
mkfifo "$WORK/pipe"
limit=2000
[ -z "${CONVOY_SANITIZED:-}" ] || limit=10000
for _ in 1 2 3; do # a busy machine may need a second try
  first_line
  [ "$spent" -ge $limit ] || break
done
[ "$spent" -lt $limit ] || fail "the first line came after $spent ms"
pass "into a pipe: the first line after $spent ms"

for count in 1 3; do
  ranks $count "${options[@]}" --out "$WORK/file-$count" --epochs 2
  expect 0 "a run into a file"
  if LC_ALL=C grep -q $'[\r\033\b]' "$WORK/out.txt" "$WORK/err.txt"; then fail "carriage returns or escape codes" "$WORK/out.txt"; fi
  grep -q '^epoch 1/2  step ' "$WORK/out.txt" || fail "no plain line of progress" "$WORK/out.txt"
  cp "$WORK/out.txt" "$WORK/lines-$count.txt"
done

# Names that would end a line or speak to a terminal.
odd=$WORK/$'odd\n\e[31m\r'
ranks 1 "${options[@]}" --out "$odd" --epochs 2
expect 0 "a folder with an odd name"
if LC_ALL=C grep -q $'[\r\033\b]' "$WORK/out.txt"; then fail "a name's control characters are printed" "$WORK/out.txt"; fi
[ "$(wc -l < "$WORK/out.txt")" = "$(wc -l < "$WORK/lines-1.txt")" ] || fail "a name ends a line" "$WORK/out.txt"
echo damaged > "$odd/checkpoints/step-00000999.h5"
ranks 1 "${options[@]}" --out "$odd" --epochs 3 --resume
expect 0 "a damaged checkpoint in a folder with an odd name"
grep -q '^warning: .*odd??\[31m?/checkpoints/step-00000999.h5' "$WORK/err.txt" || fail "a warning of more than one line" "$WORK/err.txt"
pass "control characters in a name are not printed"

number='[0-9]+(\.[0-9]+)?'
grep -Eq "^epoch 2/2: .*images/s; step $number ms" "$WORK/lines-1.txt" || fail "no step time" "$WORK/lines-1.txt"
host=$(uname -n)
sed -nE "s#^epoch 2/2: .*images/s; step ($number)/($number)/($number) ms, slowest rank ([0-9]) on ${host%%.*}.*#\1 \3 \5 \7#p" "$WORK/lines-3.txt" > "$WORK/times.txt"
awk '{ ok = $1 > 0 && $1 <= $2 && $2 <= $3 && $4 >= 0 && $4 <= 2 } END { exit !(NR == 1 && ok) }' "$WORK/times.txt" || fail "the ranks' step times" "$WORK/lines-3.txt"
pass "into a file: plain lines; epoch lines compare the ranks"

# Of a batch of one image rank 0 gets it and rank 1 nothing: rank 0 is the slow one, and rank 1 waits for it.
"$CONVOY" data synth "$WORK/few" --train 10 --test 4 --size 96 > "$WORK/synth.txt" 2>&1 || fail "data synth" "$WORK/synth.txt"
ranks 2 "${options[@]}" --data "$WORK/few" --out "$WORK/slow" --model resnet20 --batch 1 --epochs 1 --optimizer sgd
expect 0 "a run with a slow rank"
grep -Eq "^epoch 1/1: .* ms, slowest rank 0 on " "$WORK/out.txt" || fail "the slow rank is not named" "$WORK/out.txt"
python3 - "$WORK/slow/run.json" << 'PYTHON' || fail "run.json" "$WORK/slow/run.json"
import json, sys
result = json.load(open(sys.argv[1]))["result"]
least, median, most = result["step_spread"]
assert 0 < 2 * least < most and least <= median <= most, result
assert 0 < result["session_wait"] < 0.9 * result["session_steps"], result
assert result["session_evaluation"] > 0 and result["session_saves"] > 0, result
PYTHON
pass "a slow rank is named"

ranks 2 "${options[@]}" --out "$WORK/quiet" --epochs 1 --quiet
expect 0 "--quiet"
[ -s "$WORK/out.txt" ] && fail "--quiet says something" "$WORK/out.txt"
ranks 1 "${options[@]}" --out "$WORK/verbose" --epochs 1 --log-every 5 --verbose
expect 0 "--verbose"
[ "$(grep -c '^step [0-9]*/20: loss [0-9.]*, lr 0.001, [0-9]* images/s' "$WORK/out.txt")" = 4 ] || fail "--verbose: not a line for each row" "$WORK/out.txt"
ranks 1 "${options[@]}" --out "$WORK/both" --quiet --verbose
expect 2 "--quiet --verbose"
one_error "--quiet --verbose"
pass "--quiet, --verbose"

# ---- on a terminal ----
program tmux || exit 77
tmux() { command tmux -S "$WORK/tmux-$terminals" -f /dev/null "$@"; } # a server a terminal: one may take its time to end
terminals=0
clean_up() { tmux kill-server 2> /dev/null; }
shell() { # COLUMNS: a terminal with a shell, whose raw output goes to $WORK/raw
  tmux kill-server 2> /dev/null
  terminals=$((terminals + 1))
  rm -f "$WORK/raw"
  tmux new-session -d -x "$1" -y 24 "env PS1='READY ' NO_COLOR=1 bash --norc --noprofile -i"
  tmux pipe-pane "cat > '$WORK/raw'"
  wait_for '^READY'
}
type_line() { tmux send-keys -l "$1" && tmux send-keys Enter; }
screen() { tmux capture-pane -p > "$WORK/screen.txt"; }
wait_for() { # PATTERN: until the screen has a line like it
  for _ in $(seq 600); do
    screen
    grep -Eq -- "$1" "$WORK/screen.txt" && return 0
    sleep 0.1
  done
  fail "the screen never shows $1" "$WORK/screen.txt"
}
longest() { awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }' "$WORK/screen.txt"; }
# The live line is one line that begins like this; right after another line of the run there is none.
live='^epoch [0-9]+/9999  step [0-9]+/7999200'
start() { # COLUMNS LAUNCHER [OPTION...]: a long run on a terminal, until its live line moves
  local first
  rm -rf "$WORK/live"
  shell "$1"
  printf '%s %s %s --out %s --epochs 9999 --eval-every 0 --checkpoint-minutes 60\n' "$2" "$CONVOY" "${options[*]} --batch 8 --data $WORK/long ${*:3}" "$WORK/live" > "$WORK/run.sh"
  type_line "clear; bash $WORK/run.sh; echo 'code' \$?"
  wait_for "$live"
  first=$(grep -E "$live" "$WORK/screen.txt")
  for _ in $(seq 100); do
    screen
    [ "$(grep -Ec "$live" "$WORK/screen.txt")" -le 1 ] || fail "not one live line" "$WORK/screen.txt"
    [ "$(grep -E "$live" "$WORK/screen.txt" || echo "$first")" = "$first" ] || return 0
    sleep 0.1
  done
  fail "the live line stands still" "$WORK/screen.txt"
}
gone() { # WHAT: what is left on the screen when the shell is back
  grep -Eq "$live" "$WORK/screen.txt" && fail "$1: the live line stays" "$WORK/screen.txt"
  grep -q '\[=*>* *\]\|\^C' "$WORK/screen.txt" && fail "$1: a piece of the live line stays" "$WORK/screen.txt"
  LC_ALL=C tr -d '\r' < "$WORK/raw" > "$WORK/raw.txt"
}

start 80 ""
wait_for "${live}  loss [0-9.]+  [0-9]+ images/s  [0-9:?]+ left"
[ "$(grep -E "$live" "$WORK/screen.txt" | wc -L)" -le 79 ] || fail "the live line fills the last column" "$WORK/screen.txt"
tmux resize-window -x 100 -y 24
wait_for "${live}  loss .* left  \[[=> ]{20}\]$"
tmux send-keys C-c
wait_for '^code'
grep -q '^code 75' "$WORK/screen.txt" || fail "Ctrl-C: the exit code" "$WORK/screen.txt"
grep -q '^stopped by a signal at step' "$WORK/screen.txt" || fail "Ctrl-C: no last words" "$WORK/screen.txt"
gone "Ctrl-C"
# tmux answers a shell's own codes, not the program's: between the run's first and last line there is none
sed -n '/convoy [0-9.]*: 1 rank/,/stopped by a signal at/p' "$WORK/raw.txt" | sed '1s/.*convoy/convoy/' > "$WORK/run.txt"
[ -s "$WORK/run.txt" ] || fail "the raw output" "$WORK/raw.txt"
if LC_ALL=C grep -q $'\033' "$WORK/run.txt"; then fail "escape codes on the terminal" "$WORK/run.txt"; fi
pass "80 columns, widened to 100: one live line without escape codes; Ctrl-C leaves nothing but words and a checkpoint"

start 40 ""
for _ in 1 2 3 4 5; do
  screen
  [ "$(longest)" -le 40 ] || fail "wider than the terminal" "$WORK/screen.txt"
  [ "$(grep -Ec "$live" "$WORK/screen.txt")" -le 1 ] || fail "not one live line at 40 columns" "$WORK/screen.txt"
  [ "$(grep -E "$live" "$WORK/screen.txt" | wc -L)" -le 39 ] || fail "the live line fills the last column" "$WORK/screen.txt"
  sleep 0.2
done
tmux send-keys C-c
wait_for '^code 75'
gone "Ctrl-C at 40 columns"
pass "40 columns: the live line fits"

start 80 "" --model resnet20 # slow enough that no other line comes meanwhile
wait_for "${live}  loss .* left"
tmux resize-window -x 40 -y 24
for _ in $(seq 20); do
  screen
  ! grep -Eq "$live" "$WORK/screen.txt" || [ "$(grep -E "$live" "$WORK/screen.txt" | wc -L)" -gt 39 ] || break
  sleep 0.1
done
[ "$(grep -c ' left' "$WORK/screen.txt")" = 0 ] || fail "a piece of the wide line stays" "$WORK/screen.txt"
tmux send-keys C-c
wait_for '^code 75'
gone "narrowed"
pass "narrowed from 80 to 40 columns: nothing of the wide line stays"

# An error while the live line stands: a rank dies; mpirun hands the terminal's width on.
start 80 "mpirun --oversubscribe --bind-to none -np 2"
victim=$(pgrep -f "^$CONVOY train .*--out $WORK/live " | tail -1)
kill -KILL "$victim"
wait_for '^code [1-9]'
grep -q '^error: rank 1 on host .* died' "$WORK/screen.txt" || grep -q '^mpirun noticed' "$WORK/screen.txt" || fail "no error on a line of its own" "$WORK/screen.txt"
grep -Eq 'left.*(error|mpirun|----)' "$WORK/screen.txt" && fail "the launcher's words stand behind the live line" "$WORK/screen.txt"
pass "under mpirun: a live line; a rank's death is told on lines of its own"

shell 80
type_line "clear; $CONVOY ${options[*]} --out $WORK/nan --epochs 2 --lr 1e30; echo 'code' \$?"
wait_for '^code 3'
grep -q '^error: the loss is not finite' "$WORK/screen.txt" || fail "the error does not begin its line" "$WORK/screen.txt"
grep -Eq '^epoch 1/2  step' "$WORK/screen.txt" && fail "an error leaves the live line" "$WORK/screen.txt"
pass "an error: the live line is gone, the error begins its line"
