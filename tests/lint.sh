#!/usr/bin/env bash
# Style and fault checks over the whole tree: clang-format, clang-tidy (.clang-tidy), cppcheck, shellcheck. One line a
# check, the findings of those that failed, a closing count.
#
# usage: tests/lint.sh [FILE...]        only those sources (clang-format and clang-tidy)
# environment: CONVOY_BUILD  a configured build folder with compile_commands.json (default build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
need_packages build test lint
build=${CONVOY_BUILD:-build}
[ -e "$build/compile_commands.json" ] || build_convoy "$build" convoy -DBUILD_TESTING=ON

if [ $# -gt 0 ]; then
  sources=("$@")
else
  mapfile -t sources < <(find app data model tests -name '*.[ch]' | sort)
fi
mapfile -t scripts < <(find jobs tests results .ci -type f \( -name '*.sh' -o -name '*.sbatch' -o -path .ci/run \) | sort)
# Only what this build compiles has flags to check it with.
mapfile -t compiled < <(for file in "${sources[@]}"; do
  ! grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json" || printf '%s\n' "$file"
done)

passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check() { # check NAME COMMAND...
  local name=$1 begin=$SECONDS
  shift
  if "$@" >"$work/log" 2>&1 </dev/null; then
    passed=$((passed + 1))
    printf 'ok    %s (%d s)\n' "$name" $((SECONDS - begin))
  else
    failed=$((failed + 1))
    printf 'FAIL  %s (%d s)\n' "$name" $((SECONDS - begin))
    # all findings, short; then how the analyzer came to them, without clang-tidy's counts
    grep -E '(error|warning): ' "$work/log" | sort -u | cut -c 1-250 || true
    grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed |^Use -header-filter|warnings generated\.$' "$work/log" |
      head -n 150 || true
  fi
}

tidy() { # a process a file, as many at a time as there are cores
  printf '%s\0' "${compiled[@]}" | xargs -0 -r -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build"
}
cpp_check() {
  # log(0) is seen where a sum of exponentials begins at 0; cmocka's assertions and fixtures own memory across calls
  cppcheck --quiet --error-exitcode=1 --suppress=invalidFunctionArg --suppress='memleak:tests/*' \
    --suppress='resourceLeak:tests/*' --std=c11 --language=c --enable=warning,performance,portability \
    --inline-suppr --suppress=missingIncludeSystem --suppress=preprocessorErrorDirective -j "$(nproc)" \
    -I . -DCONVOY_VERSION='"0"' -D_GNU_SOURCE -DCONVOY_CPU -DCONVOY_ARCHIVE -DCONVOY_JPEG -DCONVOY_PNG \
    "${compiled[@]}"
}

check "clang-format: ${#sources[@]} files" clang-format --dry-run -Werror "${sources[@]}"
check "clang-tidy: ${#compiled[@]} files" tidy
check "cppcheck: ${#compiled[@]} files" cpp_check
# Too little memory has one status: what error.h says.
memory_status() { ! grep -Pzo 'RAISE\(\s*STATUS_INTERNAL,\s*"(no|out of) memory[^"]*' "${sources[@]}" | tr '\0' '\n' | grep .; }
check "too little memory is STATUS_INPUT" memory_status
check "shellcheck: ${#scripts[@]} scripts" shellcheck -x "${scripts[@]}"

printf 'lint: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
