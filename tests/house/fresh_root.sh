#!/usr/bin/env bash
# Checks scripts/fresh_root.sh and .ci/run without creating a root. If no root can be created, they
# print the reason and run ./check directly. They remove a partial root, however they end. Stand-ins
# replace debootstrap and ./check. `make check-fresh` is the real run.
#
# Usage: fresh_root.sh <project root>
set -u
source=$(cd -- "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
project=$folder/project
export TMPDIR=$folder/roots
status=0

# pretend <command> <shell text>: adds a stand-in at the beginning of PATH.
pretend() {
    printf '#!/bin/bash\n%s\n' "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

new_machine() {
    rm -rf -- "$folder/bin" "$project" "$TMPDIR"
    mkdir -p "$folder/bin" "$project/scripts" "$project/.ci" "$TMPDIR"
    cp "$source/scripts/fresh_root.sh" "$project/scripts"
    cp "$source/.ci/run" "$project/.ci"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho "check in $PWD with $# arguments"; exit 3\n' >"$project/check"
    chmod +x "$project/check"
    pretend id 'echo 0'
    pretend unshare 'exit 0'
    pretend setpriv 'exec "${@:3}"'
    pretend debootstrap 'exit 0'
    pretend apt-get 'exit 0'
    pretend df 'echo Avail; echo 20'
}

run() { PATH="$folder/bin:$PATH" "$@" >"$folder/out" 2>"$folder/err"; }

expect() {
    local what=$1
    shift
    if ! "$@"; then
        printf 'FAILED: %s\n' "$what"
        head -n 5 "$folder/out" "$folder/err"
        status=1
    fi
}

# expect_check_here <case> <reason>: checks that it prints the reason and runs ./check on this
# machine.
expect_check_here() {
    local program
    for program in scripts/fresh_root.sh .ci/run; do
        run "$project/$program"
        expect "$1: the exit status is the command's ($program)" test $? -eq 3
        expect "$1: it says so in one line ($program)" test "$(grep -c '^fresh root: cannot create an empty Debian' "$folder/out")" -eq 1
        expect "$1: it says why ($program)" grep -q "($2.*): running ./check on this machine" "$folder/out"
        expect "$1: ./check runs last ($program)" test "$(tail -n 1 "$folder/out")" = \
            "check in $project with 0 arguments"
        expect "$1: nothing is left ($program)" test -z "$(ls -A "$TMPDIR")"
    done
}

new_machine
pretend id 'echo 1000'
expect_check_here 'not root' 'it needs root'

new_machine
pretend unshare 'echo "Operation not permitted" >&2; exit 1'
expect_check_here 'no mounts' 'mounting is not permitted'

new_machine
pretend df 'echo Avail; echo 19'
expect_check_here 'disk full' "19 GB are free in $TMPDIR, but 20 are needed"

# A PATH of its own, because this machine may have debootstrap.
new_machine
rm "$folder/bin/debootstrap"
pretend apt-get 'exit 100'
for tool in bash dirname grep env sh tail; do
    ln -s "$(type -P "$tool")" "$folder/bin/$tool"
done
PATH=$folder/bin "$project/.ci/run" >"$folder/out" 2>"$folder/err"
expect 'no debootstrap: the exit status is the command'\''s' test $? -eq 3
expect 'no debootstrap: it says so' grep -q 'debootstrap is missing and cannot be installed' \
    "$folder/out"
expect 'no debootstrap: it announces what it installs' grep -q 'installing debootstrap' "$folder/err"

# A debootstrap that fails, in real namespaces if they are permitted.
new_machine
rm "$folder/bin/setpriv"
if [ "$(id -u)" -eq 0 ] &&
    unshare --mount --pid --fork --kill-child mount -t proc proc /proc 2>/dev/null; then
    rm "$folder/bin/unshare"
    pretend debootstrap "sed -n 's/^SigIgn:.*\\([0-9a-f]\\)\$/\\1/p' /proc/self/status >'$folder/ignored'
echo 'E: no mirror'; exit 1"
    expect_check_here 'debootstrap fails' 'debootstrap failed: E: no mirror'
    # SIGINT and SIGQUIT are bits 1 and 2.
    expect 'signals are not ignored in the root' grep -qx '[0189]' "$folder/ignored"

    pretend debootstrap "mkdir -p \"\$3/dev\"; mount -t tmpfs tmpfs \"\$3/dev\"
echo begun >'$folder/begun'; sleep 1000 & sleep 1000"
    for signal in TERM INT HUP KILL; do
        rm -f "$folder/begun"
        PATH="$folder/bin:$PATH" env --default-signal=INT setsid "$project/.ci/run" >"$folder/out" 2>"$folder/err" &
        pid=$!
        for ((i = 0; i < 600; i++)); do
            [ ! -e "$folder/begun" ] || break
            sleep 0.1
        done
        namespaced=$(cat /proc/*/mountinfo 2>/dev/null | grep -c "$TMPDIR")
        expect "SIG$signal: something was mounted" test "$namespaced" -gt 0
        kill "-$signal" "$pid"
        wait "$pid" 2>/dev/null
        code=$?
        for ((i = 0; i < 600; i++)); do
            cat /proc/*/mountinfo 2>/dev/null | grep -q "$TMPDIR" || break
            sleep 0.1
        done
        expect "SIG$signal: no mount and no process is left" test "$i" -lt 600
        [ "$signal" = KILL ] && continue
        expect "SIG$signal: the root is removed" test -z "$(ls -A "$TMPDIR")"
        expect "SIG$signal: the exit status says so" test "$code" -eq $((128 + $(kill -l "$signal")))
    done
else
    echo 'skipped: ends of a real run (no right to mount)'
fi

new_machine
run "$project/scripts/fresh_root.sh" --help
expect '--help succeeds' test $? -eq 0
expect '--help says how to call it' grep -q '^Usage: fresh_root.sh' "$folder/out"
run "$project/scripts/fresh_root.sh" --wrong
expect 'an unknown option is refused' test $? -eq 1
expect 'an unknown option is named' grep -q -- '--wrong' "$folder/err"

exit $status
