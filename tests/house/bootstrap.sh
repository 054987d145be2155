#!/usr/bin/env bash
# Checks scripts/bootstrap.sh on simulated systems. Stand-ins replace dpkg-query, apt-get, id and
# sudo, and only record their calls. Nothing is installed.
#
# Usage: bootstrap.sh <project root>
set -u
bootstrap=$1/scripts/bootstrap.sh
list=$1/scripts/packages.txt
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
log=$folder/log
kind=all
status=0

# pretend <command> <shell text>: adds a stand-in to the PATH of the simulated system.
pretend() {
    printf '#!/bin/bash\n%s\n' "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

# Creates a simulated system on which everything but the given packages is installed.
new_system() {
    local installed
    rm -rf -- "$folder/bin" "$log"
    mkdir -p "$folder/bin"
    for tool in bash dirname grep tr env cat cut true; do
        ln -s "$(type -P "$tool")" "$folder/bin/$tool"
    done
    installed=$(grep -v '^#' "$list" | grep . | cut -d ' ' -f 1 | grep -vxF -f <(printf '%s\n' "$@") | sed 's/$/:installed /' | tr -d '\n')
    pretend dpkg-query "printf '%s' '$installed'"
    pretend apt-get "echo \"apt-get \$* [\${DEBIAN_FRONTEND:-}]\" >>'$log'"
    pretend id 'echo 0'
}

run() {
    env -u HARPE_NO_BOOTSTRAP PATH="$folder/bin" "$@" "$bootstrap" $kind >"$folder/out" 2>"$folder/err"
}

expect() {
    local what=$1
    shift
    if ! "$@"; then
        printf 'FAILED: %s\n' "$what"
        head -n 5 "$folder/out" "$folder/err" "$log" 2>/dev/null
        status=1
    fi
}

new_system none
expect 'succeeds when nothing is missing' run env
expect 'is silent when nothing is missing' test ! -s "$folder/out" -a ! -s "$folder/err"
expect 'calls no apt-get when nothing is missing' test ! -e "$log"

new_system cmake scdoc
expect 'succeeds when packages are missing' run env
expect 'installs exactly what is missing' grep -q \
    '^apt-get install -y -q --no-install-recommends cmake scdoc \[noninteractive\]$' "$log"
expect 'updates once' test "$(grep -c '^apt-get update' "$log")" -eq 1
expect 'announces what it installs' grep -q 'installing cmake scdoc' "$folder/out"

new_system cmake clang
pretend apt-get "echo \"apt-get \$*\" >>'$log'; case \$* in *--assume-no*)
echo '0 upgraded, 12 newly installed, 0 to remove and 3 not upgraded.'
echo 'Need to get 3,456 kB/1,234 MB of archives.'
echo 'After this operation, 2,771 MB of additional disk space will be used.'
exit 1 ;; esac"
expect 'installs all for tests' run env
expect 'installs what only tests need' grep -q '^apt-get install -y .* cmake clang$' "$log"
expect 'says how much that is' grep -qx \
    'bootstrap: with what they need: 12 packages, 3,456 kB/1,234 MB to fetch, 2,771 MB on the disk' "$folder/out"
expect 'says what for' grep -q '(for all tests' "$folder/out"
kind= expect 'installs what building needs' run env
expect 'installs nothing that only tests need' grep -q '^apt-get install -y .* cmake$' "$log"
expect 'says that it is to build' grep -q '(to build)' "$folder/out"

new_system clang chromium
kind= expect 'misses nothing for building' run env
expect 'calls no apt-get for what only tests need' test ! -e "$log"

new_system nodejs
pretend node true
expect 'is content with a command that is there' run env
expect 'installs no package for it' test ! -e "$log"

new_system nodejs
expect 'installs a package whose command is missing' run env
expect 'installs that package' grep -q 'install .* nodejs ' "$log"

new_system cmake
expect 'HARPE_NO_BOOTSTRAP skips' run env HARPE_NO_BOOTSTRAP=1
expect 'HARPE_NO_BOOTSTRAP installs nothing' test ! -e "$log"

new_system cmake
pretend id 'echo 1000'
expect 'fails without root and sudo' eval '! run env'
expect 'names the commands to run as root' grep -q \
    'as root, run: apt-get update && apt-get install --no-install-recommends cmake$' "$folder/err"
expect 'says it in one line' test "$(wc -l <"$folder/err")" -eq 1
pretend sudo "echo 'tester is not in the sudoers file.' >&2; exit 1"
expect 'fails where sudo refuses' eval '! run env'
expect 'says that sudo refuses, and the commands' grep -q \
    'sudo refuses: as root, run: apt-get update && apt-get install --no-install-recommends cmake$' "$folder/err"
expect 'calls no apt-get without sudo' test ! -e "$log"
pretend sudo "echo sudo >>'$log'; exec \"\$@\""
expect 'uses sudo when not root' run env
expect 'really uses sudo' grep -q '^sudo$' "$log"

new_system cmake
rm "$folder/bin/apt-get"
expect 'fails without apt-get' eval '! run env'
expect 'lists packages for other systems' grep -q 'no apt-get.*libjansson-dev' "$folder/err"
expect 'fails in one line' test "$(wc -l <"$folder/err")" -eq 1

new_system cmake
pretend apt-get 'exit 100'
expect 'fails when apt-get fails' eval '! run env'
expect 'says what was needed' grep -q 'apt-get update failed.*cmake' "$folder/err"

exit $status
