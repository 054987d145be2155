#!/usr/bin/env bash
# Installs the missing Debian packages of scripts/packages.txt: those that building needs, or all.
# First prints their number and size; prints nothing if no package is missing. HARPE_NO_BOOTSTRAP=1
# skips the installation, for systems that get the packages in another way.
#
# Usage: bootstrap.sh [all]
set -u

readonly list="$(dirname -- "${BASH_SOURCE[0]}")/packages.txt"
readonly wanted=${1:-build}

fail() {
    printf 'bootstrap: %s\n' "$*" >&2
    exit 1
}

# Prints the wanted lines of the list, without comments.
wanted_packages() {
    local line
    while read -r line; do
        case $line in
        '# ---- Development'*) [ "$wanted" = all ] || return 0 ;;
        '' | '#'*) ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$list"
}

# Prints the wanted packages that are not installed.
missing_packages() {
    local installed package command
    installed=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' 2>/dev/null)"
    while read -r package command; do
        case $installed in
        *" $package:installed "*) continue ;;
        esac
        [ -n "$command" ] && command -v "$command" >/dev/null || printf '%s ' "$package"
    done < <(wanted_packages)
}

# Prints the number of packages to install, the size of the download, and the disk space that apt
# reports.
announce() {
    local line purpose='to build' packages='' fetch='' disk=''
    [ "$wanted" = build ] || purpose='for all tests; building alone needs far fewer'
    while read -r line; do
        case $line in
        *' newly installed,'*) packages=${line#*, } packages=${packages%% *} ;;
        'Need to get '*) fetch=${line#Need to get } fetch=${fetch%% of *} ;;
        'After this operation, '*) disk=${line#After this operation, } disk=${disk%% of *} ;;
        esac
    done < <("${become_root[@]}" env LC_ALL=C \
        apt-get install --assume-no --no-install-recommends "$@" </dev/null 2>/dev/null)
    printf 'bootstrap: installing %s (%s)\n' "$*" "$purpose"
    [ -z "$disk" ] || printf 'bootstrap: with what they need: %s packages, %s to fetch, %s on the disk\n' \
        "$packages" "$fetch" "${disk% additional disk space*}"
}

main() {
    [ -z "${HARPE_NO_BOOTSTRAP:-}" ] || return 0
    [ -r "$list" ] || fail "cannot read $list"

    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        fail "this is not a Debian system (no apt-get): install the counterparts of $(wanted_packages | cut -d ' ' -f 1 | tr '\n' ' ')by hand, then set HARPE_NO_BOOTSTRAP=1"
    fi

    local -a missing become_root=()
    read -r -a missing <<<"$(missing_packages)"
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "$(id -u)" -ne 0 ]; then
        local by_hand="as root, run: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        command -v sudo >/dev/null || fail "not root and no sudo: $by_hand"
        sudo true || fail "sudo refuses: $by_hand"
        become_root=(sudo)
    fi

    "${become_root[@]}" apt-get update -q ||
        fail "apt-get update failed (is the network there?); needed: ${missing[*]}"
    announce "${missing[@]}"
    "${become_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null ||
        fail "apt-get install failed; needed: ${missing[*]}"
}

main "$@"
