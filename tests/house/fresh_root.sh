#!/usr/bin/env bash
# Checks scripts/fresh_root.sh and .ci/run without creating a root. If no root can be created, they
# print the reason and run ./check directly; with CI=true they fail. Stand-ins replace debootstrap and
# ./check. With `ends`, checks in real namespaces that they remove a partial root, however they end.
# `make check-fresh` is the real run.
#
# Usage: fresh_root.sh <project root> [ends]
set -u
unset CI FRESH_ROOT_SUITE FRESH_ROOT_BEGAN
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
    cp "$source"/scripts/{fresh_root,apt_get}.sh "$project/scripts"
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
# machine; or, with CI=true, that it fails.
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
        run env CI=true "$project/$program"
        expect "$1, in CI: it fails ($program)" test $? -eq 1
        expect "$1, in CI: it says why in one line ($program)" test "$(grep -c "^fresh root: cannot create an empty Debian ($2.*), so nothing is proven" "$folder/err")" -eq 1
        expect "$1, in CI: ./check does not run ($program)" eval "! grep -q '^check in' '$folder/out'"
        expect "$1, in CI: nothing is left ($program)" test -z "$(ls -A "$TMPDIR")"
    done
}

check_ends() {
    new_machine
    rm "$folder/bin/setpriv"
    if [ "$(id -u)" -ne 0 ] ||
        ! unshare --mount --pid --fork --kill-child mount -t proc proc /proc 2>/dev/null; then
        echo 'skipped: no right to mount'
        exit 77
    fi
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
}

if [ "${2:-}" = ends ]; then
    check_ends
    exit $status
fi

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
# Another program holds apt's lock until `sleep` is called. Then debootstrap is there.
pretend apt-get "[ -e '$folder/released' ] || { echo 'E: Could not get lock /var/lib/apt/lists/lock' >&2; exit 100; }
case \$* in *debootstrap) echo installed >'$folder/released' ;; esac"
pretend sleep ": >'$folder/released'"
PATH=$folder/bin CI=true "$project/.ci/run" >"$folder/out" 2>"$folder/err"
expect 'apt is locked: it waits' grep -q 'waiting until another program releases its lock' "$folder/err"
expect 'apt is locked: it installs debootstrap then' grep -qx installed "$folder/released"
expect 'apt is locked: it goes on' eval "! grep -q 'debootstrap is missing' '$folder/out' '$folder/err'"

# A debootstrap that fails, without namespaces.
debootstrap_alone() {
    new_machine
    pretend unshare 'case $* in *--inside*" make_root"*) exec "${@:5}" ;; esac'
    pretend apt-get "[ \$1 != indextargets ] || printf '%s\\n' 'http://x/security $1-security main' 'http://x/debian $1 contrib' 'http://x/debian $1 main'"
    pretend debootstrap "echo \"\$2 \${*:4}\" >'$folder/asked'; echo 'E: no mirror'; exit 1"
}
debootstrap_alone bookworm
expect_check_here 'debootstrap fails' 'debootstrap failed: E: no mirror'
expect 'it is asked for Debian 12, from the mirror of this machine' grep -qx 'bookworm http://x/debian' "$folder/asked"
run "$project/scripts/fresh_root.sh" --suite trixie ./check
expect '--suite: ./check runs here, too' test $? -eq 3
expect '--suite: debootstrap is asked for it' grep -q '^trixie ' "$folder/asked"
own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
if grep -qx ID=debian /etc/os-release; then
    debootstrap_alone "$own"
    run "$project/scripts/fresh_root.sh" --suite other ./check
    expect '--suite: it comes from the mirror of this suite' grep -qx 'other http://x/debian' "$folder/asked"
    run env FRESH_ROOT_SUITE=other "$project/scripts/fresh_root.sh" --inside / list_sources
    expect 'its security updates, too' test "$(cat "$folder/out")" = \
        $'deb http://x/debian other main\ndeb http://x/security other-security main'
fi

new_machine
run "$project/scripts/fresh_root.sh" --help
expect '--help succeeds' test $? -eq 0
expect '--help says how to call it' grep -q '^Usage: fresh_root.sh' "$folder/out"
run "$project/scripts/fresh_root.sh" --wrong
expect 'an unknown option is refused' test $? -eq 1
expect 'an unknown option is named' grep -q -- '--wrong' "$folder/err"
for wrong in --suite '--suite ../x' --as-root '--suite trixie --as-root'; do
    # shellcheck disable=SC2086
    run "$project/scripts/fresh_root.sh" $wrong
    expect "$wrong is refused" test $? -eq 1
    expect "$wrong: it says what is missing" grep -q 'which .*--help' "$folder/err"
done

exit $status
