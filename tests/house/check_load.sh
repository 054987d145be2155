#!/usr/bin/env bash
# Checks scripts/check_load.sh with a stand-in for what ./check runs: how often it runs, its report of
# failed tests, and that its busy processes exist meanwhile and are gone afterwards.
#
# Usage: check_load.sh <project root>
set -u
unset REPEAT LOAD # set if this test runs in a round of the script
source=$(cd -- "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
project=$folder/project
status=0

# Lines of $folder/plan name the test that fails, one line per round. The stand-in notes the busy
# processes of its script.
mkdir -p "$folder/bin" "$project/scripts"
cp "$source/scripts/check_load.sh" "$project/scripts"
printf '#!/bin/bash\necho 2\n' >"$folder/bin/nproc"
cat >"$project/scripts/check.sh" <<END
#!/bin/bash
echo "\$*" >>'$folder/calls'
read -r _ _ _ parent _ </proc/\$\$/stat
for ((i = 0; i < 600; i++)); do
    read -r -a children <"/proc/\$parent/task/\$parent/children"
    [ \${#children[@]} -le \$((2 * \${LOAD:-4})) ] || break
    sleep 0.1
done
for child in "\${children[@]}"; do [ \$child -eq \$\$ ] || echo \$child; done >'$folder/busy'
sed -n 's/^SigIgn:.*\\([0-9a-f]\\)\$/\\1/p' /proc/self/status >'$folder/ignored'
if [ -e '$folder/hang' ]; then
    sleep 1000 & # a test
    echo \$! >'$folder/test'
    wait
fi
failed=\$(sed -n "\$(wc -l <'$folder/calls')p" '$folder/plan')
[ -n "\$failed" ] || exit 0
printf 'The following tests FAILED:\n\t 17 - %s (Failed)\nErrors while running CTest\n' "\$failed"
exit 8
END
chmod +x "$folder/bin/nproc" "$project/scripts/check.sh"

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

# gone <file>: waits until the processes that the file names have ended; they may be zombies.
gone() {
    local i pid state alive
    for ((i = 0; i < 600; i++)); do
        alive=0
        while read -r pid; do
            state=$(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
            [ -z "$state" ] || [ "$state" = Z ] || alive=1
        done <"$1"
        [ "$alive" -eq 1 ] || return 0
        sleep 0.1
    done
    return 1
}

run </dev/null
expect 'succeeds when all tests pass' test $? -eq 0
expect 'runs what ./check runs, five times' test "$(cat "$folder/calls")" = $'check\ncheck\ncheck\ncheck\ncheck'
expect 'keeps four processes for each core busy' test "$(wc -l <"$folder/busy")" -eq 8
expect 'gives the time of each round' grep -q '^check-load: round 5 of 5 beside 8 busy processes: passed in [0-9]* s$' "$folder/out"
expect 'says that all passed' grep -q '5 of 5 rounds passed' "$folder/out"
expect 'ends the busy processes' gone "$folder/busy"
expect 'prints no error when all is well' test ! -s "$folder/err"
expect 'leaves Ctrl-C to the tests' grep -qx '[0189]' "$folder/ignored" # SIGINT and SIGQUIT: bits 1 and 2

run REPEAT=3 LOAD=1 <<'END'
a_test

b_test
END
expect 'fails when tests fail' test $? -eq 1
expect 'LOAD counts' test "$(wc -l <"$folder/busy")" -eq 2
expect 'names what failed in each round' test "$(grep -o '[ab]_test\|round . of 3\|1 of 3' "$folder/out" | tr '\n' ';')" = \
    'round 1 of 3;a_test;round 2 of 3;round 3 of 3;b_test;1 of 3;'

run LOAD=0 REPEAT=1 </dev/null
expect 'works without load' test $? -eq 0 -a ! -s "$folder/busy"

for wrong in REPEAT=0 REPEAT=many LOAD=-1 LOAD=1.5; do
    run "$wrong" </dev/null
    expect "$wrong is refused" test $? -eq 2 -a ! -e "$folder/calls"
    expect "$wrong is named" grep -q -- "$wrong" "$folder/err"
done

touch "$folder/hang"
for signal in INT TERM HUP KILL; do
    rm -f "$folder/test"
    PATH="$folder/bin:$PATH" env --default-signal=INT,HUP "$project/scripts/check_load.sh" \
        >"$folder/out" 2>"$folder/err" &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        [ ! -s "$folder/test" ] || break
        sleep 0.1
    done
    kill "-$signal" "$pid"
    wait "$pid" 2>/dev/null
    expect "SIG$signal: the exit status says so" test $? -eq $((128 + $(kill -l "$signal")))
    expect "SIG$signal: no process stays busy" gone "$folder/busy"
    [ "$signal" = KILL ] || expect "SIG$signal: no test goes on" gone "$folder/test"
    kill "$(cat "$folder/test")" 2>/dev/null
done
exit $status
