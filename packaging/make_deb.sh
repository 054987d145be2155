#!/usr/bin/env bash
# `make deb`: makes Debian packages of the source tree as it is, in build/deb or in the given folder
# (packages with debug symbols in debug/ below it), and runs lintian on them. Installs
# missing packages of the sections [build] and [packages] of scripts/packages.txt. The same tree gives the
# same packages, byte for byte, in any folder.
#
# Usage: make_deb.sh [folder]
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
mkdir -p "${1:-build/deb}"
folder=$(cd -- "${1:-build/deb}" && pwd)
version=$(packaging/version.sh)
tree=$folder/harpe-$version

fail() {
    printf 'make deb: %s\n' "$*" >&2
    exit 1
}

# The files of the project, without build folders and other files that git ignores.
list_sources() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . \( -path ./build -o -path ./.git -o -path ./python/build -o -name '*.egg-info' \) -prune -o -type f -print0
    fi
}

# Describes a build of a commit after the release that the changelog begins with. Its time becomes
# SOURCE_DATE_EPOCH.
add_to_changelog() {
    local time
    time=$(printf '%s' "${version#*+git}" | sed 's/^\(....\)\(..\)\(..\)\(..\)\(..\)\(..\).*/\1-\2-\3 \4:\5:\6Z/')
    {
        sed -n "1s/ ([^-]*/ ($version/p" packaging/debian/changelog
        printf '\n  * Build of the commit %s.\n\n -- %s  %s\n\n' "${version##*.g}" \
            "$(sed -n 's/^Maintainer: //p' packaging/debian/control)" "$(LC_ALL=C date --utc -R -d "$time")"
        cat packaging/debian/changelog
    } >"$tree/debian/changelog"
}

command -v apt-get >/dev/null || fail 'this is not a Debian system, but make install works everywhere'
rm -rf -- "$folder"/harpe-[0-9]* "$folder"/*harpe*_* "$folder/debug"
mkdir -p "$tree"
# Git may still list a file that was deleted.
list_sources | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || cp -p --parents -- "$file" "$tree"
done
cp -rp packaging/debian "$tree/debian"
case $version in *+git*) add_to_changelog ;; esac
scripts/bootstrap.sh packages

(cd "$tree" && dpkg-buildpackage --build=binary --unsigned-changes "--jobs=${JOBS:-$(nproc)}") \
    >"$folder/build.log" 2>&1 || { grep -v '^\[' "$folder/build.log" | tail -n 20; fail "see $folder/build.log"; }
rm -rf -- "$tree"
# The packages are not for Debian's archive, where a first package must close a request for it.
lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
    "$folder"/harpe_*.changes
mkdir -p "$folder/debug"
mv -- "$folder"/*-dbgsym_*.deb "$folder/debug"
printf '%s\n' "$folder"/*.deb
