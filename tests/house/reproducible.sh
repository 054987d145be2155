#!/usr/bin/env bash
# `make reproducible`: builds the packages twice, in folders with different names, from sources of
# different age, with another umask, time zone and language, and compares them byte for byte.
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT

packaging/make_deb.sh "$folder/here" >/dev/null
(umask 077 && TZ=Asia/Kolkata LC_ALL=C.UTF-8 packaging/make_deb.sh "$folder/some/where/else") >/dev/null

status=0
for first in "$folder"/here/*.deb "$folder"/here/debug/*.deb; do
    name=${first#"$folder/here/"}
    if cmp "$first" "$folder/some/where/else/$name"; then
        printf 'the same: %s  %s\n' "$(sha256sum <"$first" | cut -c 1-16)" "$name"
    else
        status=1
    fi
done
exit $status
