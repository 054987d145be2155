#!/usr/bin/env bash
# Installs the Debian packages of scripts/packages.txt that are missing. Silent and quick when none
# is. HARPE_NO_BOOTSTRAP=1 skips it, for those who provide the packages in another way.
set -u

readonly list="$(dirname -- "${BASH_SOURCE[0]}")/packages.txt"

fail() {
    printf 'bootstrap: %s\n' "$*" >&2
    exit 1
}

# Prints the packages of the list that are not installed.
missing_packages() {
    local installed package command
    installed=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' 2>/dev/null)"
    while read -r package command; do
        case $package in
        '' | '#'*) continue ;;
        esac
        case $installed in
        *" $package:installed "*) continue ;;
        esac
        [ -n "$command" ] && command -v "$command" >/dev/null || printf '%s ' "$package"
    done <"$list"
}

main() {
    [ -z "${HARPE_NO_BOOTSTRAP:-}" ] || return 0
    [ -r "$list" ] || fail "cannot read $list"

    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        fail "this is not a Debian system (no apt-get): install the counterparts of $(grep -v '^#' "$list" | cut -d ' ' -f 1 | tr '\n' ' ')by hand, then set HARPE_NO_BOOTSTRAP=1"
    fi

    local -a missing become_root=()
    read -r -a missing <<<"$(missing_packages)"
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "not root and no sudo: as root, run: apt-get install ${missing[*]}"
        become_root=(sudo)
    fi

    printf 'bootstrap: installing %s\n' "${missing[*]}"
    "${become_root[@]}" apt-get update -q ||
        fail "apt-get update failed (is the network there?); needed: ${missing[*]}"
    "${become_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null ||
        fail "apt-get install failed; needed: ${missing[*]}"
}

main "$@"
