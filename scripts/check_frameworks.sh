#!/usr/bin/env bash
# Runs the tests of tests/frameworks: Harpe with the real frameworks and the real peers, on CPUs and
# emulated GPUs. The frameworks come from PyPI, in exactly the versions of tests/frameworks/*.txt, into
# virtual environments in build/frameworks. They are installed once, and again when a list changes. If
# PyPI cannot be reached, the script says so and succeeds, but fails in continuous integration (CI is set).
#
#   VERSIONS="newest oldest"   the lists
#   PYTHON=python3             the interpreter of the environments: 3.11 or newer
#   TESTS=regex                only the tests whose names match
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit
readonly versions=${VERSIONS:-newest oldest} python=${PYTHON:-/usr/bin/python3} tests=${TESTS:-.}
readonly jobs=${JOBS:-$(nproc)}
readonly lists=tests/frameworks folder=build/frameworks
readonly pip_version=25.3

fail() {
    printf 'check-frameworks: %s\n' "$*" >&2
    exit 1
}

# The first comment of a list says how much its packages are.
announce() {
    printf 'check-frameworks: installing the frameworks of %s/%s.txt from PyPI into %s/%s\n' \
        "$lists" "$1" "$folder" "$1"
    sed -n 's/^# Size: /check-frameworks: /p' "$lists/$1.txt"
}

# Prints what the installed frameworks depend on: the list and the interpreter.
fingerprint() {
    "$python" -VV
    sha256sum <"$lists/$1.txt"
    printf '%s\n' "$pip_version"
}

# is_reachable <version>: installs pip into the environment. Nothing else tells whether PyPI can be
# reached through this machine's settings of pip.
is_reachable() {
    "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
        "pip==$pip_version" "setuptools<81" wheel >"$folder/$1.log" 2>&1
}

# DeepSpeed's installation imports torch, so it comes last. Without its DS_BUILD_OPS nothing is
# compiled.
install() {
    local environment=$folder/$1
    local -a pip=("$environment/bin/python" -m pip --quiet --disable-pip-version-check
        install --no-deps --requirement)
    rm -rf -- "$environment"
    mkdir -p "$folder"
    "$python" -m venv "$environment" || fail "$python cannot make a virtual environment"
    if ! is_reachable "$1"; then
        printf 'check-frameworks: nothing is tested: PyPI cannot be reached: %s\n' \
            "$(tail -n 1 "$folder/$1.log")"
        [ -n "${CI:-}" ] && exit 1
        exit 0
    fi
    announce "$1"
    grep -v '^deepspeed==' "$lists/$1.txt" >"$environment/first.txt"
    grep '^deepspeed==' "$lists/$1.txt" >"$environment/last.txt"
    "${pip[@]}" "$environment/first.txt" || fail "the frameworks of $lists/$1.txt cannot be installed"
    [ ! -s "$environment/last.txt" ] ||
        DS_BUILD_OPS=0 "${pip[@]}" "$environment/last.txt" --no-build-isolation ||
        fail "DeepSpeed of $lists/$1.txt cannot be installed"
    fingerprint "$1" >"$environment/installed"
}

is_installed() {
    [ -e "$folder/$1/installed" ] && [ "$(cat "$folder/$1/installed")" = "$(fingerprint "$1")" ]
}

# One list may skip what the other proves, so a skip is no failure here.
run() {
    printf '== frameworks: %s\n' "$1"
    HARPE_FRAMEWORKS=$PWD/$folder/$1/bin/python env -u CI \
        scripts/run_tests.py release -C Frameworks -L '^frameworks$' -R "$tests" -j $((2 * jobs))
}

for version in $versions; do
    [ -e "$lists/$version.txt" ] || fail "$lists/$version.txt does not exist: VERSIONS takes newest, oldest"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is not a Python of 3.11 or newer: PYTHON=python3.12 names another one"
done
status=0
for version in $versions; do
    is_installed "$version" || install "$version"
    run "$version" || status=1
done
exit "$status"
