#!/usr/bin/env bash
# Runs all checks that must pass before a change is merged. Checks that fail fastest come first:
# builds with gcc and clang, then the tests under sanitizers, and last the release tests, which
# include those of the project's rules (style, includes, symbols, installation). Stops at the first
# part that fails.
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
tests_at_once=$((2 * jobs)) # most tests wait more than they compute

# Without cmocka, the build would contain no tests.
pkg-config --exists cmocka || { echo 'check: no cmocka (see scripts/packages.txt)' >&2; exit 1; }

build() {
    printf '== build: %s\n' "$1"
    cmake --preset "$1" --log-level=WARNING >/dev/null
    cmake --build --preset "$1" -j "$jobs"
}

build release
build clang
build asan
printf '== tests: asan\n'
ctest --preset asan -j "$tests_at_once"
printf '== tests: release\n'
exec ctest --preset release -j "$tests_at_once"
