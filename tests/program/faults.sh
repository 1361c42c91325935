# shellcheck shell=bash
# shellcheck disable=SC2034 # code is read by the suites
# Helpers of the suites that kill, freeze and signal ranks. Sourced after lib.sh.

CONVOY=$(readlink -f "$CONVOY")
LAUNCH=(mpirun --oversubscribe --bind-to none -np)

# processes_of OUT: the pids of the ranks that train into OUT or evaluate its checkpoint, by rank.
processes_of() {
  local process rank
  for process in $(pgrep -f -- "--(out|checkpoint) $1 "); do
    [ "$(readlink "/proc/$process/exe")" = "$CONVOY" ] || continue
    rank=$(tr '\0' '\n' < "/proc/$process/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
    echo "${rank:-0} $process"
  done 2> /dev/null | sort -n | cut -d' ' -f2
}

# rank_of OUT RANK: the pid of one rank.
rank_of() { processes_of "$1" | sed -n "$(($2 + 1))p"; }

# start RANKS ARGUMENT...: runs the program in the background, its pid in $runner; finish waits for it.
start() {
  local count=$1
  shift
  if [ "$count" = 1 ]; then
    "$CONVOY" "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" &
  else
    "${LAUNCH[@]}" "$count" "$CONVOY" "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" &
  fi
  runner=$!
}

finish() {
  code=0
  wait "$runner" || code=$?
}

# rows_in OUT N: waits until loss.csv has N rows.
rows_in() {
  local i
  for i in $(seq 1200); do
    [ -f "$1/loss.csv" ] && [ "$(wc -l < "$1/loss.csv")" -gt "$2" ] && return
    kill -0 "$runner" 2> /dev/null || fail "the run ended before row $2 (try $i)" "$WORK/out.txt" "$WORK/err.txt"
    sleep 0.05
  done
  fail "no row $2 within a minute" "$WORK/out.txt" "$WORK/err.txt"
}

# none_left OUT WHAT: no rank lives on.
none_left() {
  local i
  for i in $(seq 100); do
    [ -z "$(processes_of "$1")" ] && return
    sleep 0.1
  done
  fail "$2: processes are left after $i looks: $(processes_of "$1" | tr '\n' ' ')"
}
