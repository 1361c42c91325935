#!/usr/bin/env bash
# Fuzzes the shard reader and the import of archives and images, with seeds made by the tests. A crash, an input that
# takes more than 5 s, or more than 1 GiB of memory fails; the input stays in the build folder. A crash inside of the
# HDF5 library is told and does not fail: the library does not withstand every damaged file, and is not ours to mend.
#
# usage: tests/fuzz.sh [SECONDS]        for each target (default 60)
# environment: CONVOY_BUILD  the build folder with the tests (default build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
seconds=${1:-60}
build=${CONVOY_BUILD:-build}
need_packages build test fuzz
[ -x "$build/tests/test_import" ] || build_convoy "$build" all -DBUILD_TESTING=ON
(CC=clang build_convoy build-fuzz fuzz -DFUZZ=ON -DWITH_CPU=ON -DWITH_CUDA=OFF -DBUILD_TESTING=ON)
export ASAN_OPTIONS=allocator_may_return_null=1 LSAN_OPTIONS=suppressions=tests/fuzz/lsan.supp:print_suppressions=0
limits=(-timeout=5 -rss_limit_mb=1024 -max_len=65536)

# fault_of TARGET INPUT: where the innermost frame lies that is Convoy's or HDF5's: "convoy" or "hdf5".
fault_of() {
  nice -n 15 "$1" "${limits[@]}" "$2" 2>&1 | awk -v here="$PWD/" '
    /^ *#[0-9]+ / && !found && (/libhdf5/ || index($0, here "data/") || index($0, here "model/") || index($0, here "tests/")) {
      found = /libhdf5/ ? "hdf5" : "convoy" }
    END { print found ? found : "convoy" }'
}

failed=0
for name in shard import; do
  say "Fuzzing: $name, $seconds s"
  target=build-fuzz/tests/fuzz_$name corpus=build-fuzz/corpus-$name seeds=build-fuzz/seeds-$name
  log=build-fuzz/fuzz-$name.log
  rm -rf "$seeds" build-fuzz/fault-"$name"-*
  mkdir -p "$corpus" "$seeds"
  case $name in
    shard) CONVOY_SEEDS=$seeds "$build/tests/test_data" >/dev/null 2>&1 ;;
    import) CONVOY_SEEDS=$seeds "$build/tests/test_import" >/dev/null 2>&1 ;;
  esac
  [ -n "$(ls "$seeds")" ] || die 1 "the tests made no seeds for $name"
  # A process of its own for every few thousand inputs, so that a crash does not end the search.
  nice -n 15 "$target" -fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -max_total_time="$seconds" "${limits[@]}" \
    -artifact_prefix="build-fuzz/fault-$name-" "$corpus" "$seeds" >"$log" 2>&1 ||
    grep -q '^INFO: exiting: ' "$log" || { tail -n 40 "$log"; die 1 "$target ended"; } # its code is the last process's
  grep '^#[0-9]*: cov:' "$log" | tail -n 1
  library=0
  for input in build-fuzz/fault-"$name"-*; do
    [ -e "$input" ] || continue
    if [ "$(fault_of "$target" "$input")" = hdf5 ]; then
      library=$((library + 1))
      continue
    fi
    printf 'fault: %s %s\n' "$target" "$input"
    failed=$((failed + 1))
  done
  [ $library = 0 ] || printf '%d inputs crash inside of the HDF5 library\n' $library
done
[ $failed = 0 ] || die 1 "$failed inputs fail; run the target on one to see how"
