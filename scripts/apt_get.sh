#!/usr/bin/env bash
# Runs apt-get as root, with sudo if necessary. While another program holds apt's or dpkg's lock, says
# so in one line and tries again, for 10 minutes. Messages on stderr come at the end of a try.
#
# Usage: apt_get.sh ARGUMENT...
set -u
readonly tries=60 pause_s=10
become_root=()
[ "$(id -u)" -eq 0 ] || become_root=(sudo)

for ((i = 1; ; i++)); do
    { errors=$("${become_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" \
        2>&1 >&3 3>&- </dev/null); } 3>&1
    status=$?
    case $status:$errors in
    0:*) break ;;
    *'Could not get lock'* | *'Unable to lock'* | *'Unable to acquire the dpkg'*) ;;
    *) break ;;
    esac
    [ "$i" -lt "$tries" ] || break
    [ "$i" -gt 1 ] || printf 'apt-get %s: waiting until another program releases its lock: %s\n' "$1" \
        "${errors%%$'\n'*}"
    sleep "$pause_s"
done
[ -z "$errors" ] || printf '%s\n' "$errors" >&2
exit "$status"
