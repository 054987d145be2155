#!/usr/bin/env bash
# Builds Harpe and runs the tests of one part: `check` is what ./check runs; scripts/check_all.py has
# the table of the others. Tests that compute run one per core, tests that wait 16 at once. Stops at the
# first failure.
#
# Usage: check.sh PART
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
readonly part=${1:-check}
readonly jobs=${JOBS:-$(nproc)} waiting=16

build() {
    printf '== build: %s\n' "$1"
    cmake --preset "$1" --log-level=WARNING >/dev/null
    # Without cmocka, the build contains no tests.
    grep -qs '^HARPE_HAS_TESTS:INTERNAL=ON$' "build/$1/CMakeCache.txt" ||
        { echo 'check: no cmocka: scripts/bootstrap.sh check installs what the tests need' >&2; exit 1; }
    cmake --build --preset "$1" -j "$jobs"
}

# tests <what> <tests at once> <preset> <ctest options...>
tests() {
    local what=$1 at_once=$2 preset=$3
    local -a named=()
    shift 3
    [ "$part" = check ] || named=(--part "$part")
    printf '== tests: %s\n' "$what"
    scripts/run_tests.py "${named[@]}" "$preset" -j "$at_once" "$@"
}

# The file may be edited while it runs, so the shell has read all of it before it runs this function.
main() {
    case $part in
    check)
        build release
        tests 'fast ones' "$jobs" release -L '^fast$'
        tests 'one of each journey, with processes' "$waiting" release -L '^smoke$'
        ;;
    processes)
        build release
        tests 'those with processes' "$waiting" release -L '^process$'
        ;;
    asan | clang | tsan)
        build "$part"
        tests "fast ones, $part" "$jobs" "$part" -L '^fast$'
        ;;
    asan-processes)
        build asan
        tests 'those with processes, asan' "$waiting" asan -L '^(smoke|process)$'
        ;;
    peers)
        build release
        # The monitors have an environment of their own, because their NumPy would replace Debian's.
        local folder
        for folder in build/peers build/monitors; do
            [ -x "$folder/bin/pip" ] || python3 -m venv "$folder"
        done
        build/peers/bin/pip install --quiet --disable-pip-version-check kubernetes-validate highspy
        build/monitors/bin/pip install --quiet --disable-pip-version-check codecarbon gpustat nvitop gputil setuptools
        [ -x build/peers/bin/zeusd ] || cargo install --quiet --root build/peers zeusd
        PYTHONPATH=$(echo "$PWD"/build/peers/lib/python3*/site-packages) \
            HARPE_KUBERNETES_VALIDATE=$PWD/build/peers/bin/kubernetes-validate HARPE_ZEUSD=$PWD/build/peers/bin/zeusd \
            HARPE_MONITORS_PYTHON=$PWD/build/monitors/bin/python3 \
            tests 'beside programs of others' 4 release -L '^peers$'
        ;;
    postgresql) # the tests of the store use it where all trials are made
        build release
        HARPE_TEST_SCALE=1 tests 'with PostgreSQL' 4 release -L '^postgresql$'
        ;;
    trials)
        build release
        HARPE_TEST_SCALE=1 tests 'all trials' "$jobs" release -L '^(fast|trials)$'
        ;;
    *)
        build release
        tests "$part" 4 release -L "^$part\$"
        ;;
    esac
}

main; exit
