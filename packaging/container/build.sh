#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the image harpe-agent:VERSION from the Debian packages that `make deb` has made. Needs
# buildah. With --debootstrap it makes the base image from Debian's archive and uses no registry.
# This needs root and debootstrap.
#
# Usage: build.sh [--debootstrap] [folder with the packages]
set -eu
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$(dirname -- "$here")")
mirror=${DEBIAN_MIRROR:-} # empty: debootstrap chooses
# The isolation chroot works also where containers cannot be started, for example in a container.
isolation=${BUILDAH_ISOLATION:-chroot}
base=debian:12-slim
pull=false

fail() {
    printf 'build.sh: %s\n' "$*" >&2
    exit 1
}

# Makes the image localhost/debian:12 from a minimal Debian, if it does not exist.
make_base() {
    local container
    base=localhost/debian:12
    pull=never
    if buildah inspect --type image "$base" >/dev/null 2>&1; then return; fi
    folder=$(mktemp -d)
    trap 'rm -rf --one-file-system -- "$folder"' EXIT
    # debootstrap runs in a mount namespace of its own, so its mounts do not stay on this machine.
    unshare --mount debootstrap --variant=minbase bookworm "$folder/root" ${mirror:+"$mirror"} >"$folder/log" 2>&1 ||
        { tail -n 5 "$folder/log" >&2; fail 'debootstrap failed'; }
    (cd -- "$folder/root" && rm -rf -- var/cache/apt/archives/*.deb dev/*)
    container=$(buildah from scratch)
    buildah add -q "$container" "$folder/root" / >/dev/null
    buildah commit -q "$container" "$base" >/dev/null
    buildah rm "$container" >/dev/null
}

from_archive=no
if [ "${1:-}" = --debootstrap ]; then
    from_archive=yes
    shift
fi
packages=$(cd -- "${1:-$root/build/deb}" && pwd) || fail 'there is no folder with packages: run make deb'
package=$(echo "$packages"/harpe_*.deb)
[ -f "$package" ] || fail "expected one package harpe in $packages: run make deb"
version=$(dpkg-deb -f "$package" Version)
version=${version%%[+-]*} # a tag may have no +
command -v buildah >/dev/null || fail 'buildah not found: apt-get install buildah'
[ "$from_archive" = no ] || make_base
buildah build -q --isolation "$isolation" --build-arg "BASE=$base" --pull="$pull" \
    --tag "harpe-agent:$version" --file "$here/Containerfile" "$packages"
