#!/usr/bin/env bash
# Everything that must hold before a change goes in, in the order in which it fails fastest: builds
# with gcc and clang, the tests under sanitizers, and last the release tests, which include those of
# the house itself (style, floors, symbols, installation). Stops at the first part that fails.
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}

# Without it no test would be built.
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
ctest --preset asan -j "$jobs"
printf '== tests: release\n'
exec ctest --preset release -j "$jobs"
