#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the token of harpe-serve.service, once: /etc/harpe/token, which root and members of the group
# harpe may read. A token that exists stays, with its owner and mode. To change the token, remove the
# file, run this script again and restart the service.
#
# Usage: make-token.sh [FILE]
set -eu
file=${1:-/etc/harpe/token}
group=harpe

# An empty file is not a token. A full disk may have left it.
if [ -s "$file" ]; then
    exit 0
fi
if ! getent group "$group" >/dev/null; then
    groupadd --system "$group"
fi
folder=$(dirname -- "$file")
[ -d "$folder" ] || install -d -m 0755 -- "$folder"

# The file appears whole, and no other user can read it at any time.
umask 077
new=$(mktemp -- "$file.XXXXXX")
trap 'rm -f -- "$new"' EXIT
od -A n -t x1 -N 32 /dev/urandom | tr -d ' \n' >"$new"
echo >>"$new"
[ "$(wc -c <"$new")" -eq 65 ] || { echo "make-token.sh: /dev/urandom gave too few bytes" >&2; exit 1; }
chgrp -- "$group" "$new"
chmod 0640 -- "$new"
sync -- "$new"
mv -f -- "$new" "$file"
