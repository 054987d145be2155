#!/usr/bin/env bash
# Runs what ./check runs several times while other processes keep every core busy, and prints how long
# each round took and which tests failed. The tests and the busy processes end with this script, even if
# it is killed. The output of each round is in build/load.
#
#   REPEAT=5      rounds
#   LOAD=4        busy processes for each core
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit
readonly repeat=${REPEAT:-5} load=${LOAD:-4}
readonly logs=build/load

busy=() runner='' failed=0
clean_up() {
    trap '' INT TERM HUP
    exec 2>/dev/null # prevents a message of the shell for each killed process
    [ -z "$runner" ] || kill -TERM -- "-$runner" 2>/dev/null
    [ ${#busy[@]} -eq 0 ] || kill -KILL "${busy[@]}" 2>/dev/null
    wait
}

start_load() {
    local i
    for ((i = 0; i < load * $(nproc); i++)); do
        setpriv --pdeathsig KILL "$BASH" -c 'while :; do :; done' </dev/null >/dev/null 2>&1 &
        busy+=($!)
    done
}

# Runs one round in a process group of its own, because ctest can end without its tests. A shell's
# background processes ignore Ctrl-C; tests must not.
run_round() {
    local began=$EPOCHSECONDS log=$logs/round-$1.log result=passed
    env --default-signal=INT,QUIT setsid setpriv --pdeathsig TERM scripts/check.sh check >"$log" 2>&1 </dev/null &
    runner=$!
    wait "$runner" || result=FAILED
    runner=''
    printf 'check-load: round %d of %d beside %d busy processes: %s in %d s\n' "$1" "$repeat" "${#busy[@]}" \
        "$result" $((EPOCHSECONDS - began))
    [ "$result" = passed ] && return
    failed=$((failed + 1))
    sed -n '/^The following tests FAILED:/,/^Errors while/p' "$log" | grep ' - ' || tail -n 5 "$log"
}

for value in "REPEAT=$repeat" "LOAD=$load"; do
    case ${value#*=} in
    '' | *[!0-9]* | 0*) [ "$value" = LOAD=0 ] || {
        printf 'check-load: %s: it takes a number, such as 4\n' "$value" >&2
        exit 2
    } ;;
    esac
done
rm -rf "$logs"
mkdir -p "$logs"

trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
start_load
for ((round = 1; round <= repeat; round++)); do
    run_round "$round"
done
printf 'check-load: %d of %d rounds passed; the output of each is in %s\n' $((repeat - failed)) "$repeat" "$logs"
[ "$failed" -eq 0 ]
