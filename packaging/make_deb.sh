#!/usr/bin/env bash
# `make deb`: Debian packages of the source tree as it is, in build/deb or the folder given (those with
# debug symbols in debug/ there), and what lintian says about them. Installs what packaging/debian/control builds with, and lintian, where they
# are missing. The same tree gives the same packages, byte for byte, wherever it lies.
#
# Usage: make_deb.sh [folder]
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
mkdir -p "${1:-build/deb}"
folder=$(cd -- "${1:-build/deb}" && pwd)
version=$(sed -n 's/^project(Harpe VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
tree=$folder/harpe-$version

fail() {
    printf 'make deb: %s\n' "$*" >&2
    exit 1
}

# What belongs to the project: without build folders and whatever else git ignores.
list_sources() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . \( -path ./build -o -path ./.git -o -path ./python/build -o -name '*.egg-info' \) -prune -o -type f -print0
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_missing() {
    [ -z "${HARPE_NO_BOOTSTRAP:-}" ] || return 0
    if ! command -v dpkg-buildpackage >/dev/null || ! command -v lintian >/dev/null; then
        as_root apt-get update -q
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q --no-install-recommends dpkg-dev lintian
    fi
    if ! (cd "$tree" && dpkg-checkbuilddeps 2>/dev/null); then
        as_root apt-get update -q
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get build-dep -y -q --no-install-recommends "$tree"
    fi
}

command -v apt-get >/dev/null || fail 'this is not a Debian system, but make install works everywhere'
rm -rf -- "$tree" "$folder"/*harpe*_"$version"-* "$folder"/*harpe*_*.deb "$folder/debug"
mkdir -p "$tree"
# A file may have been deleted that git still lists.
list_sources | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || cp -p --parents -- "$file" "$tree"
done
cp -rp packaging/debian "$tree/debian"
install_missing

(cd "$tree" && dpkg-buildpackage --build=binary --unsigned-changes "--jobs=${JOBS:-$(nproc)}") \
    >"$folder/build.log" 2>&1 || { grep -v '^\[' "$folder/build.log" | tail -n 20; fail "see $folder/build.log"; }
rm -rf -- "$tree"
# They are not on their way to Debian's archive, where a first package answers a request for it.
lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
    "$folder"/harpe_*.changes
mkdir -p "$folder/debug"
mv -- "$folder"/*-dbgsym_*.deb "$folder/debug"
printf '%s\n' "$folder"/*.deb
