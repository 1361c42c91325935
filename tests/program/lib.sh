# shellcheck shell=bash
# Helpers of the whole-program suites. Sourced with the binary as $1; sets CONVOY, WORK (removed at the end). A suite
# that does not run on the CPU backend names its own in NEEDS. What a suite leaves out for want of a reader, a right or a
# device makes it end with 77 where all else passed: ctest counts it as skipped.
set -u
CONVOY=$1
WORK=$(mktemp -d) || exit 1
left_out=
clean_up() { :; } # a suite may have its own, called before WORK goes
end_suite() {
  local code=$?
  clean_up
  rm -rf "$WORK"
  [ $code != 0 ] || [ -z "$left_out" ] || exit 77
}
trap end_suite EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What tests/run.sh fetches for them is used where a suite is run alone, too.
readers=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build-readers
for python in "$readers/python/bin/python" /usr/bin/python3; do # the system's: another may come first, without its packages
  [ -n "${CONVOY_PYTHON:-}" ] || ! [ -x "$python" ] || CONVOY_PYTHON=$python
done
export CONVOY_PYTHON=${CONVOY_PYTHON:-python3} PATH=$PATH:$readers/prometheus/usr/bin
# Sanitized builds: MPI leaks; the suites look at results.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}

pass() { echo "ok: $1"; }
fail() {
  echo "FAILED: $1"
  shift
  for file in "$@"; do
    echo "--- $file"
    cat "$file"
  done
  exit 1
}

# leave_out WHAT: a part of the suite cannot run here. To be called in the suite's own shell, as what calls it below.
leave_out() {
  echo "left out: $1"
  left_out=yes
}
# program NAME, modules NAME...: whether a program, or modules of CONVOY_PYTHON, are here. If not, what needs them is left
# out; where tests/run.sh has seen to them, the suite fails.
program() { command -v "$1" > /dev/null || missing "$1" "in PATH"; }
modules() {
  local name why
  for name in "$@"; do
    why=$("$CONVOY_PYTHON" -c "import $name" 2>&1) || missing "$name" "for $CONVOY_PYTHON: ${why##*$'\n'}" || return
  done
}
missing() {
  case " ${CONVOY_PROVIDED:-} " in
    *" $1 "*) fail "tests/run.sh has installed or fetched $1, but it is not found $2" ;;
  esac
  leave_out "what needs $1 (none $2)"
  return 1
}
# works WHAT COMMAND...: whether COMMAND, which needs rights, succeeds here; if not, WHAT is left out.
works() { "${@:2}" > /dev/null 2>&1 || { leave_out "$1 ('${*:2}' fails)" && return 1; }; }
# plain WHAT: whether this build is not instrumented. WHAT is for such builds only, by design: nothing is left out.
plain() { [ -z "${CONVOY_SANITIZED:-}" ] || { echo "for a build without sanitizers: $1"; return 1; }; }

if ! "$CONVOY" --version | grep -q "backends:.* ${NEEDS:-cpu}"; then
  leave_out "everything: built without the backend ${NEEDS:-cpu}"
  exit 77
fi
program mpirun || exit 77

# ranks N ARGUMENT...: runs the program on N ranks, output in $WORK/out.txt and $WORK/err.txt, exit code in $code.
ranks() {
  local count=$1
  shift
  code=0
  if [ "$count" = 1 ]; then
    "$CONVOY" "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  else
    mpirun --oversubscribe --bind-to none -np "$count" "$CONVOY" "$@" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
  fi
}

# expect CODE WHAT: the last run's exit code.
expect() {
  [ "$code" = "$1" ] || fail "$2: exit code $code, expected $1" "$WORK/out.txt" "$WORK/err.txt"
}

# one_error WHAT: exactly one error line on stderr.
one_error() {
  [ "$(grep -c '^error: ' "$WORK/err.txt")" = 1 ] || fail "$1: not one error line" "$WORK/err.txt"
}

# close_losses A B TOLERANCE: loss.csv A and B have the same rows, their losses within TOLERANCE.
close_losses() {
  awk -F, -v tolerance="$3" '
    NR == FNR { step[FNR] = $1; loss[FNR] = $3; rows = FNR; next }
    FNR > 1 { d = $3 - loss[FNR]; if (d < 0) d = -d; if ($1 != step[FNR] || $3 == "" || d > tolerance) bad = FNR }
    END { if (bad || FNR != rows || rows < 2) { print "row " bad ", " rows " and " FNR " rows"; exit 1 } }' "$1" "$2"
}

# no_times CSV: without the columns of time.
no_times() { cut -d, -f1-4 "$1"; }

# same_arrays A B: two checkpoints hold the same arrays, bit for bit.
same_arrays() { "$(dirname "$CONVOY")/../tests/compare_arrays" "$1" "$2" /parameters /optimizer /statistics; }

# same_state A B DATA: ... and their evaluation is the same to all digits.
same_state() {
  same_arrays "$1" "$2" || return 1
  ranks 1 eval --data "$3" --checkpoint "$1" --backend cpu --threads 1
  tail -1 "$WORK/out.txt" > "$WORK/first.json"
  ranks 1 eval --data "$3" --checkpoint "$2" --backend cpu --threads 1
  tail -1 "$WORK/out.txt" | diff "$WORK/first.json" -
}

# set_of DIR TRAIN TEST: a generated data set.
set_of() {
  "$CONVOY" data synth "$1" --train "$2" --test "$3" > "$WORK/synth.txt" 2>&1 || fail "data synth" "$WORK/synth.txt"
}
