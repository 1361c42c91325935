#!/usr/bin/env bash
# Fuzzes the shard reader and the import of archives and images, with seeds made by the tests. A crash, an input that
# takes more than 5 s, or more than 1 GiB of memory fails; the input stays in the build folder.
#
# usage: tests/fuzz.sh [SECONDS]        for each target (default 60)
# environment: CONVOY_BUILD  the build folder with the tests (default build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
seconds=${1:-60}
build=${CONVOY_BUILD:-build}
command -v clang >/dev/null || die 2 "fuzzing needs clang with its compiler-rt (Debian: clang)"
[ -x "$build/tests/test_import" ] || build_convoy "$build" all -DBUILD_TESTING=ON
(CC=clang build_convoy build-fuzz fuzz -DFUZZ=ON -DWITH_CPU=ON -DWITH_CUDA=OFF -DBUILD_TESTING=ON)

for name in shard import; do
  say "Fuzzing: $name, $seconds s"
  corpus=build-fuzz/corpus-$name seeds=build-fuzz/seeds-$name
  rm -rf "$seeds"
  mkdir -p "$corpus" "$seeds"
  case $name in
    shard) CONVOY_SEEDS=$seeds "$build/tests/test_data" >/dev/null 2>&1 ;;
    import) CONVOY_SEEDS=$seeds "$build/tests/test_import" >/dev/null 2>&1 ;;
  esac
  [ -n "$(ls "$seeds")" ] || die 1 "the tests made no seeds for $name"
  log=build-fuzz/fuzz-$name.log
  if ! LSAN_OPTIONS=suppressions=tests/fuzz/lsan.supp:print_suppressions=0 nice -n 15 "build-fuzz/tests/fuzz_$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=65536 \
    -artifact_prefix="build-fuzz/fault-$name-" "$corpus" "$seeds" >"$log" 2>&1; then
    tail -n 40 "$log"
    die 1 "the fuzz target $name failed; its input is build-fuzz/fault-$name-*"
  fi
  tail -n 1 "$log"
done
