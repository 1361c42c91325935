#!/usr/bin/env bash
# Builds Convoy with its tests and runs every suite on what this machine has (suites for a GPU are skipped without
# one). Missing Debian packages are installed when root or sudo can. A suite that had to leave something out counts as
# skipped; what is installed or fetched here none may leave out.
#
# usage: tests/run.sh [CTEST OPTION...]        e.g. tests/run.sh -R ops
# environment: CONVOY_BUILD  the build folder (default build)
#              CONVOY_CMAKE  options for CMake, e.g. "-DSANITIZE=ON -DWITH_CUDA=OFF"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=jobs/setup.sh
. jobs/setup.sh
need_packages build test
build=${CONVOY_BUILD:-build}
read -ra options <<<"${CONVOY_CMAKE:-}"
need_readers "$PWD/build-readers"
export CONVOY_PROVIDED
build_convoy "$build" all -DBUILD_TESTING=ON "${options[@]}"
say "Running the tests"
exec ctest --test-dir "$build" --output-on-failure --no-tests=error "$@" </dev/null
