#!/usr/bin/env bash
# Installs the missing Debian packages of scripts/packages.txt: those of the section [build], and those
# of the sections that are named. First prints their number and size, and at the end the time; prints
# nothing if no package is missing. HARPE_NO_BOOTSTRAP=1 skips the installation, for systems that get
# the packages in another way.
#
# Usage: bootstrap.sh [SECTION...]    for example: bootstrap.sh check clang
#        bootstrap.sh all             every section
set -u
readonly scripts=$(dirname -- "${BASH_SOURCE[0]}")
readonly list=$scripts/packages.txt
sections=(build)

fail() {
    printf 'bootstrap: %s\n' "$*" >&2
    exit 1
}

# choose_sections <name...>: makes `sections` the list's sections of these names, in the list's order.
choose_sections() {
    local line section known=' '
    local -a chosen=()
    [ -r "$list" ] || fail "cannot read $list"
    while read -r line; do
        case $line in
        '['*']')
            section=${line:1:-1} known+="$section "
            case " build $* " in *" $section "* | *' all '*) chosen+=("$section") ;; esac
            ;;
        esac
    done <"$list"
    for section; do
        case "${known}all " in
        *" $section "*) ;;
        *) fail "$section: there is no such section in packages.txt; there are:${known% }" ;;
        esac
    done
    sections=("${chosen[@]}")
}

# Prints the lines of the chosen sections, each once, without comments.
wanted_packages() {
    local line wanted='' seen=$'\n'
    while read -r line; do
        case $line in
        '['*']') case " ${sections[*]} " in *" ${line:1:-1} "*) wanted=1 ;; *) wanted='' ;; esac ;;
        '' | '#'*) ;;
        *) case $wanted$seen in
            1*$'\n'"$line"$'\n'* | $'\n'*) ;;
            *) seen+=$line$'\n' && printf '%s\n' "$line" ;;
            esac ;;
        esac
    done <"$list"
}

# Prints the wanted packages that are not installed, with their alternatives. Prints nothing if only
# packages are missing that this release does not have.
missing_packages() {
    local installed names name command missing='' needed=''
    installed=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' 2>/dev/null)"
    while read -r names command; do
        for name in ${names//|/ }; do
            case $installed in *" $name:installed "*) continue 2 ;; esac
        done
        [ -z "$command" ] || ! command -v "$command" >/dev/null || continue
        missing+="$names "
        case $names in
        *'|-') [ -z "$(apt-cache show "${names%|-}" 2>/dev/null)" ] || needed=1 ;;
        *) needed=1 ;;
        esac
    done < <(wanted_packages)
    [ -z "$needed" ] || printf '%s' "$missing"
}

# Prints for each argument the first of its alternatives that apt knows.
known_packages() {
    local names name
    for names; do
        case $names in
        *'|'*)
            for name in ${names//|/ }; do
                [ "$name" != - ] || continue 2
                [ -z "$(apt-cache show "$name" 2>/dev/null)" ] || break
                name=''
            done
            [ -n "$name" ] || fail "apt knows none of these packages: ${names//|/ }"
            ;;
        *) name=$names ;;
        esac
        printf '%s ' "$name"
    done
}

# Prints the number of packages to install, the size of the download, and the disk space that apt
# reports.
announce() {
    local line packages='' fetch='' disk=''
    while read -r line; do
        case $line in
        'apt-get '*' its lock: '*) printf '%s\n' "$line" ;;
        *' newly installed,'*) packages=${line#*, } packages=${packages%% *} ;;
        'Need to get '*) fetch=${line#Need to get } fetch=${fetch%% of *} ;;
        'After this operation, '*) disk=${line#After this operation, } disk=${disk%% of *} ;;
        esac
    done < <("$scripts/apt_get.sh" install --assume-no --no-install-recommends "$@" 2>/dev/null)
    printf 'bootstrap: installing %s (for: %s)\n' "$*" "${sections[*]}"
    [ -z "$disk" ] || printf 'bootstrap: with what they need: %s packages, %s to fetch, %s on the disk\n' \
        "$packages" "$fetch" "${disk% additional disk space*}"
}

main() {
    [ -z "${HARPE_NO_BOOTSTRAP:-}" ] || return 0
    choose_sections "$@"

    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        fail "this is not a Debian system (no apt-get): install the counterparts of $(wanted_packages | cut -d ' ' -f 1 | cut -d '|' -f 1 | tr '\n' ' ')by hand, then set HARPE_NO_BOOTSTRAP=1"
    fi

    local -a missing known
    local began_s=$SECONDS needed
    read -r -a missing <<<"$(missing_packages)"
    [ ${#missing[@]} -gt 0 ] || return 0
    needed=${missing[*]%%|*}

    if [ "$(id -u)" -ne 0 ]; then
        local by_hand="as root, run: apt-get update && apt-get install --no-install-recommends $needed"
        command -v sudo >/dev/null || fail "not root and no sudo: $by_hand"
        sudo true || fail "sudo refuses: $by_hand"
    fi

    "$scripts/apt_get.sh" update -q || fail "apt-get update failed (is the network there?); needed: $needed"
    known=$(known_packages "${missing[@]}") || exit
    read -r -a known <<<"$known"
    announce "${known[@]}"
    "$scripts/apt_get.sh" install -y -q --no-install-recommends "${known[@]}" ||
        fail "apt-get install failed; needed: ${known[*]}"
    printf 'bootstrap: the installation took %d s\n' $((SECONDS - began_s))
}

main "$@"
