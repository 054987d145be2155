#!/usr/bin/env bash
# Checks scripts/bootstrap.sh and scripts/apt_get.sh on simulated systems. Stand-ins replace dpkg-query, apt-get, id and
# sudo, and only record their calls. Nothing is installed.
#
# Usage: bootstrap.sh <project root>
set -u
bootstrap=$1/scripts/bootstrap.sh
list=$1/scripts/packages.txt
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
log=$folder/log
sections=all
status=0

# pretend <command> <shell text>: adds a stand-in to the PATH of the simulated system.
pretend() {
    printf '#!/bin/sh\n%s\n' "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

# All packages of the list, as dpkg-query prints them.
all=$(sed -n 's/^\([a-z][^ |]*\).*/ \1:installed /p' "$list" | tr -d '\n')
mkdir "$folder/tools"
for tool in bash dirname grep tr env cat cut true wc rm; do
    ln -s "$(type -P "$tool")" "$folder/tools/$tool"
done

# Creates a simulated system on which everything but the given packages is installed.
new_system() {
    local installed package
    rm -rf -- "$folder/bin" "$log"
    cp -R -- "$folder/tools" "$folder/bin"
    installed=$all
    for package; do
        installed=${installed//" $package:installed "/ }
    done
    pretend dpkg-query "printf '%s' '$installed'"
    pretend apt-get "echo \"apt-get \$* [\${DEBIAN_FRONTEND:-}]\" >>'$log'"
    pretend id 'echo 0'
}

run() {
    env -u HARPE_NO_BOOTSTRAP PATH="$folder/bin" "$@" "$bootstrap" $sections >"$folder/out" 2>"$folder/err"
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
expect 'installs all' run env
expect 'installs what only tests need' grep -q '^apt-get install -y .* cmake clang$' "$log"
expect 'says how much that is' grep -qx \
    'bootstrap: with what they need: 12 packages, 3,456 kB/1,234 MB to fetch, 2,771 MB on the disk' "$folder/out"
expect 'says what for' grep -q '^bootstrap: installing cmake clang (for: build check clang .* frameworks)$' "$folder/out"
expect 'says how long it took' grep -qx 'bootstrap: the installation took [0-9]* s' "$folder/out"
sections= expect 'installs what building needs' run env
expect 'installs nothing that only tests need' grep -q '^apt-get install -y .* cmake$' "$log"
expect 'says that it is for building' grep -q '(for: build)' "$folder/out"

sections='tidy clang' expect 'installs the sections that are named, and what building needs' run env
expect 'installs them once' grep -q '^apt-get install -y .* cmake clang$' "$log"
expect 'names the sections' grep -q '(for: build clang tidy)' "$folder/out"

new_system cmake clang
sections=check expect 'installs a section' run env
expect 'installs nothing of another section' grep -q '^apt-get install -y .* cmake \[' "$log"
sections='check firefox' expect 'refuses an unknown section' eval '! run env'
expect 'names it and those that there are' grep -q 'firefox: there is no such section .* build check clang' "$folder/err"
sections=-h expect 'refuses an option' eval '! run env'

# A package of several sections.
new_system libopenmpi-dev
expect 'installs a package of several sections' run env
expect 'installs it once' grep -q '^apt-get install -y -q --no-install-recommends libopenmpi-dev \[' "$log"

# Names that differ between releases. This apt knows the given ones.
knows() { pretend apt-cache "case \" $* \" in *\" \$2 \"*) echo \"Package: \$2\" ;; *) exit 100 ;; esac"; }
new_system libclang-rt-dev cmake
expect 'succeeds where apt knows no package that a release may lack' run env
expect 'leaves it out' grep -q '^apt-get install -y -q --no-install-recommends cmake \[' "$log"
knows libclang-rt-14-dev
expect 'succeeds where a package has another name' run env
expect 'installs the name that apt knows' grep -q '^apt-get install -y .* cmake libclang-rt-14-dev \[' "$log"
knows libclang-rt-14-dev libclang-rt-dev
expect 'succeeds where apt knows several names' run env
expect 'installs the first' grep -q '^apt-get install -y .* cmake libclang-rt-dev \[' "$log"
all=" libclang-rt-14-dev:installed $all" new_system libclang-rt-dev cmake
expect 'succeeds where a package is there by another name' run env
expect 'is content with it' grep -q '^apt-get install -y -q --no-install-recommends cmake \[' "$log"
new_system libclang-rt-dev
expect 'succeeds where only a package is missing that a release may lack' run env
expect 'does not ask the network for it' test ! -e "$log"

# Another program holds a lock. While `sleep` waits, the other program ends.
lock() { # lock <command of apt-get> <message>
    new_system cmake
    : >"$folder/held"
    pretend apt-get "case \$1 in $1) [ ! -e '$folder/held' ] || { echo '$2' >&2; exit 100; } ;; esac
echo \"apt-get \$*\" >>'$log'"
    pretend sleep "echo x >>'$folder/held'; [ \$(wc -l <'$folder/held') -lt 3 ] || rm '$folder/held'"
}
waits() { [ "$(grep -c 'waiting until another program releases its lock: E: Could not get' "$folder/out")" -eq 1 ]; }
lock update 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)'
expect 'waits for the lock of the lists' run env
expect 'says so, in one line' waits
expect 'installs then' grep -q '^apt-get install -y .* cmake$' "$log"
expect 'prints no error then' test ! -s "$folder/err"
lock install 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (dpkg)'
expect 'waits for the lock of dpkg' run env
expect 'says so, in one line, too' waits
expect 'installs once' test "$(grep -c '^apt-get install -y' "$log")" -eq 1
lock update 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)'
pretend sleep "echo \"\$*\" >>'$folder/held'"
expect 'fails if the lock is never released' eval '! run env'
expect 'has then waited for ten minutes' test "$(awk '{ s += $1 } END { print s }' "$folder/held")" -ge 590
expect 'says who holds it' grep -q 'held by process 7' "$folder/err"
new_system cmake
pretend apt-get "echo 'E: no network' >&2; echo x >>'$log'; exit 100"
expect 'fails at once for another reason' eval '! run env'
expect 'does not try again' test "$(wc -l <"$log")" -eq 1
expect 'shows what apt-get says' grep -qx 'E: no network' "$folder/err"

new_system clang chromium
sections= expect 'misses nothing for building' run env
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
