#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs packaging/make-token.sh as the package does: once, again, after the file was removed, and in
# situations in which it cannot work. The group is created in a copy of /etc. Needs root and
# namespaces.
set -eu
script=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)/packaging/make-token.sh
if [ "${1:-}" != inside ]; then
    if ! unshare -m sh -ec 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work &&
        mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc' \
        2>/dev/null; then
        echo 'skipped: this needs root, mount namespaces and overlay file systems'
        exit 77
    fi
    exec unshare -m sh -ec 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work &&
        mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc &&
        exec "$0" inside' "$0"
fi

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

[ "$(stat -f -c %T /etc)" = overlayfs ] || fail 'this /etc is no copy'
rm -rf /etc/harpe
sed -i '/^harpe:/d' /etc/group
umask 000
file=/etc/harpe/token
"$script"
[ "$(stat -c '%a %U %G' "$file")" = '640 root harpe' ] || fail "$(stat "$file")"
[ "$(stat -c '%a' /etc/harpe)" = 755 ] || fail "$(stat /etc/harpe)"
grep -qx '[0-9a-f]\{64\}' "$file" || fail 'this is no token'
[ "$(ls -A /etc/harpe)" = token ] || fail "$(ls -A /etc/harpe)"
first=$(cat "$file")

echo '== it stays'
chmod 600 "$file"
touch -d 2001-01-01 "$file"
"$script"
[ "$(cat "$file")" = "$first" ] || fail 'the token changed'
[ "$(stat -c '%a %Y' "$file")" = "600 $(date -d 2001-01-01 +%s)" ] || fail "$(stat "$file")"

echo '== a new one'
rm "$file"
"$script"
[ "$(cat "$file")" != "$first" ] || fail 'the token came again'
: >"$file"
"$script"
[ -s "$file" ] || fail 'an empty file stayed'

echo '== where it cannot work'
mount -t tmpfs -o size=4k tmpfs /etc/harpe
head -c 4096 /dev/zero >/etc/harpe/full
if "$script" 2>/dev/null; then fail 'a full disk was not noticed'; fi
[ "$(ls -A /etc/harpe)" = full ] || fail "left behind: $(ls -A /etc/harpe)"
