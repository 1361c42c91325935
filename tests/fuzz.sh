#!/usr/bin/env bash
# Fuzzes what reads files that others made, with seeds made by the tests:
#   shard   a shard on its whole way: HDF5 in child processes, as in the program (tests/fuzz/fuzz_shard.c)
#   rows    what comes after HDF5, in one process (fuzz_rows.c)
#   import  archives and images (fuzz_import.c)
# A crash, an input that takes more than 5 s, or more than 1 GiB of memory fails, whatever the reason; so does a report of
# AddressSanitizer or UBSan in a child, if it lies in Convoy's code. (HDF5 itself dies in its child on some inputs: then the
# program must say so in one line, which is what the target sees.) The inputs and reports stay in the build folder.
#
# usage: tests/fuzz.sh [SECONDS [TARGET...]]        for each target (default 60, all)
# environment: CONVOY_BUILD       the build folder with the tests (default build)
#              CONVOY_FUZZ_BUILD  that of the targets (default build-fuzz)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(shard rows import)
build=${CONVOY_BUILD:-build} here=${CONVOY_FUZZ_BUILD:-build-fuzz}
need_packages build test fuzz
[ -x "$build/tests/test_import" ] || build_convoy "$build" all -DBUILD_TESTING=ON
(CC=clang build_convoy "$here" fuzz -DFUZZ=ON -DWITH_CPU=ON -DWITH_CUDA=OFF -DBUILD_TESTING=ON)
export LSAN_OPTIONS=print_suppressions=0
limits=(-timeout=5 -rss_limit_mb=1024 -max_len=65536)

# The seeds of all targets: TARGET-NUMBER.
seeds=$here/seeds
rm -rf "$seeds"
mkdir -p "$seeds/all"
for suite in "$build"/tests/test_data "$build"/tests/test_data_refused "$build"/tests/test_import*; do
  case $suite in *.*) continue ;; esac
  CONVOY_SEEDS=$seeds/all "$suite" >/dev/null 2>&1 || die 1 "$suite fails"
done

# ours REPORT: whether it tells of an error, and the innermost frame that is Convoy's or HDF5's is Convoy's. (A claimed size
# that cannot be allocated is a warning.)
ours() {
  awk -v here="$PWD/" '
    /^ *#[0-9]+ / && !found && (/libhdf5/ || index($0, here "data/") || index($0, here "model/") || index($0, here "tests/fuzz/")) {
      found = /libhdf5/ ? "hdf5" : "convoy" }
    /ERROR: / { error = 1 }
    /runtime error:/ { error = 1; found = "convoy" } # HDF5 is not instrumented
    END { exit !error || found == "hdf5" }' "$1"
}

# fuzz TARGET: its lines, and exit code 1 if it has faults.
fuzz() {
  local name=$1 target=$here/tests/fuzz_$1 corpus=$here/corpus-$1 log=$here/fuzz-$1.log reports=$here/reports-$1
  local own=() options=allocator_may_return_null=1 code=0 faults=0 children=0 input report
  rm -rf "$reports" "${seeds:?}/$name" "$here/fault-$name"-*
  mkdir -p "$corpus" "$seeds/$name" "$reports"
  find "$seeds/all" -name "$name-*" -exec cp -t "$seeds/$name" {} +
  [ -n "$(ls "$seeds/$name")" ] || die 1 "the tests made no seeds for $name"
  if [ "$name" = shard ]; then # the sanitizer tells of a child's crash; libFuzzer sees this process only
    # a child gets 1 s of processor time (test_data_guard.c), however long that takes on a loaded machine
    own=(-timeout=300 -report_slow_units=300 -handle_segv=0 -handle_bus=0 -handle_abrt=0 -handle_ill=0 -handle_fpe=0 -malloc_limit_mb=0)
    options+=":handle_abort=1:max_allocation_size_mb=1024:log_path=$PWD/$reports/report"
  fi
  # A process of its own for every few thousand inputs, so that a fault does not end the search.
  ASAN_OPTIONS=$options timeout -k 10 $((seconds + 120)) nice -n 15 "$target" -fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 \
    -max_total_time="$seconds" "${limits[@]}" "${own[@]}" -artifact_prefix="$here/fault-$name-" "$corpus" "$seeds/$name" \
    >"$log" 2>&1 || code=$?
  grep -q '^INFO: exiting: ' "$log" || { tail -n 40 "$log"; die 1 "$target ended (code $code)"; }
  printf '%s: %s\n' "$name" "$(grep '^#[0-9]*: cov:' "$log" | tail -n 1)"
  for input in "$here/fault-$name"-*; do
    [ -e "$input" ] || continue
    printf 'fault: %s %s\n' "$target" "$input"
    faults=$((faults + 1))
  done
  for report in "$reports"/*; do
    [ -e "$report" ] || continue
    if ours "$report"; then
      printf 'fault: %s\n' "$report"
      faults=$((faults + 1))
    elif grep -q 'ERROR: ' "$report"; then
      children=$((children + 1))
    fi
  done
  [ $children = 0 ] || printf '%s: %d times HDF5 died in its child, and the program said so\n' "$name" $children
  [ $faults = 0 ] || die 1 "$name: $faults faults; run the target on an input to see how"
}

say "Fuzzing: ${targets[*]}, $seconds s each, side by side"
running=() passed=0
for name in "${targets[@]}"; do
  (fuzz "$name") </dev/null &
  running+=($!)
done
for pid in "${running[@]}"; do wait "$pid" && passed=$((passed + 1)); done
printf 'fuzz: %d passed, %d failed\n' $passed $((${#targets[@]} - passed))
[ $passed = ${#targets[@]} ]
