#!/usr/bin/env bash
# Checks scripts/check_load.sh with a stand-in for ctest: how often it runs, its report of failed
# tests, and that its busy processes exist meanwhile and are gone afterwards.
#
# Usage: check_load.sh <project root>
set -u
unset REPEAT LOAD TESTS # set if this test runs in a round of the script
source=$(cd -- "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
project=$folder/project
status=0

# pretend <command> <shell text>: adds a stand-in at the beginning of PATH.
pretend() {
    printf '#!/bin/bash\n%s\n' "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

# The lines of $folder/plan name the tests that fail, one line per round of the stand-in.
mkdir -p "$folder/bin" "$project/scripts"
cp "$source/scripts/check_load.sh" "$project/scripts"
pretend cmake 'exit 0'
pretend nproc 'echo 2'
pretend ctest "echo \"\$*\" >>'$folder/calls'
for ((i = 0; i < 600; i++)); do
    grep -l 'while :; do :; done' /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3 | while read -r pid; do
        parent=\$(sed 's/.*) . \([0-9]*\) .*/\1/' /proc/\$pid/stat)
        [ \"\$parent\" != \"\$PPID\" ] || echo \$pid
    done >'$folder/busy'
    [ \$(wc -l <'$folder/busy') -lt \$((2 * \${LOAD:-4})) ] || break
    sleep 0.1
done
sed -n 's/^SigIgn:.*\\([0-9a-f]\\)\$/\\1/p' /proc/self/status >'$folder/ignored'
touch '$folder/begun'
if [ -e '$folder/hang' ]; then
    sleep 1000 & # a test
    echo \$! >'$folder/test'
    wait
fi
failed=\$(sed -n \"\$(wc -l <'$folder/calls')p\" '$folder/plan')
mkdir -p build/release/Testing/Temporary
echo '98% tests passed, of 7'
[ \"\$failed\" != broken ] || exit 3
[ -n \"\$failed\" ] || exit 0
for name in \$failed; do echo \"17:\$name\"; done >build/release/Testing/Temporary/LastTestsFailed.log
exit 8"

# run <variable...>: runs the script with a plan on standard input.
run() {
    rm -f "$folder/calls" "$folder/busy"
    cat >"$folder/plan"
    PATH="$folder/bin:$PATH" env "$@" "$project/scripts/check_load.sh" >"$folder/out" 2>"$folder/err"
}

expect() {
    local what=$1
    shift
    if ! "$@"; then
        printf 'FAILED: %s\n' "$what"
        head -n 20 "$folder/out" "$folder/err" "$folder/calls" 2>/dev/null
        status=1
    fi
}

# Waits until no process is busy: a killed process may take a moment to end.
none_is_busy() {
    local i pid alive
    for ((i = 0; i < 300; i++)); do
        alive=0
        while read -r pid; do
            ! grep -qs 'while :; do :; done' "/proc/$pid/cmdline" || alive=1
        done <"$folder/busy"
        [ "$alive" -eq 1 ] || return 0
        sleep 0.1
    done
    return 1
}

# ended <pid>
ended() {
    local i
    for ((i = 0; i < 300; i++)); do
        grep -qs sleep "/proc/$1/cmdline" || return 0
        sleep 0.1
    done
    return 1
}

run </dev/null
expect 'succeeds when all tests pass' test $? -eq 0
expect 'runs five times' test "$(wc -l <"$folder/calls")" -eq 5
expect 'runs all tests of the release' test "$(sort -u "$folder/calls")" = '--preset release -j 4 -R .'
expect 'keeps four processes for each core busy' test "$(wc -l <"$folder/busy")" -eq 8
expect 'says that all passed' grep -q 'all tests passed in all 5 rounds, beside 8 busy processes' "$folder/out"
expect 'ends the busy processes' none_is_busy
expect 'prints no error when all is well' test ! -s "$folder/err"
expect 'leaves Ctrl-C to the tests' grep -qx '[0189]' "$folder/ignored" # SIGINT and SIGQUIT: bits 1 and 2

run REPEAT=3 LOAD=1 TESTS=server_ <<'END'
a_test b_test

b_test
END
expect 'fails when tests fail' test $? -eq 1
expect 'REPEAT counts' test "$(wc -l <"$folder/calls")" -eq 3
expect 'LOAD counts' test "$(wc -l <"$folder/busy")" -eq 2
expect 'TESTS selects' grep -q -- '-R server_$' "$folder/calls"
expect 'counts each failure' test "$(grep -E '^ +[0-9]+ ' "$folder/out" | tr -s ' ' | tr '\n' ';')" = ' 2 b_test; 1 a_test;'
expect 'ends the busy processes after failures' none_is_busy

run LOAD=0 REPEAT=1 </dev/null
expect 'works without load' test $? -eq 0 -a ! -s "$folder/busy"

run <<<broken
expect 'fails when ctest itself fails' test $? -eq 2
expect 'says so' grep -q 'ctest ends with status 3' "$folder/err"
expect 'ends the busy processes then, too' none_is_busy

for wrong in REPEAT=0 REPEAT=many LOAD=-1 LOAD=1.5; do
    run "$wrong" </dev/null
    expect "$wrong is refused" test $? -eq 2 -a ! -e "$folder/calls"
    expect "$wrong is named" grep -q -- "$wrong" "$folder/err"
done

touch "$folder/hang"
for signal in INT TERM HUP KILL; do
    rm -f "$folder/begun" "$folder/test"
    PATH="$folder/bin:$PATH" env --default-signal=INT "$project/scripts/check_load.sh" \
        >"$folder/out" 2>"$folder/err" &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        [ ! -s "$folder/test" ] || break
        sleep 0.1
    done
    expect "SIG$signal: processes were busy" test "$(wc -l <"$folder/busy")" -eq 8
    kill "-$signal" "$pid"
    wait "$pid" 2>/dev/null
    expect "SIG$signal: the exit status says so" test $? -eq $((128 + $(kill -l "$signal")))
    expect "SIG$signal: no process stays busy" none_is_busy
    [ "$signal" = KILL ] || expect "SIG$signal: no test goes on" ended "$(cat "$folder/test")"
    kill "$(cat "$folder/test")" 2>/dev/null
done
exit $status
