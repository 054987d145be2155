#!/usr/bin/env bash
# Runs the release tests several times while other processes keep every core busy, and prints at the
# end how often each test failed. The tests and the busy processes end with this script, even if it is
# killed. The output of each round is in build/load.
#
#   REPEAT=5      rounds
#   LOAD=4        busy processes for each core
#   TESTS=regex   only the tests whose names match
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit
readonly repeat=${REPEAT:-5} load=${LOAD:-4} tests=${TESTS:-.}
readonly logs=build/load
readonly failed_list=build/release/Testing/Temporary/LastTestsFailed.log

fail() {
    printf 'check-load: %s\n' "$*" >&2
    exit 2
}

busy=() runner=''
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

# Runs one round and adds the names of failed tests to build/load/failed. ctest runs in a process
# group of its own, because it can end without its tests. A shell's background processes ignore
# Ctrl-C; tests must not.
run_round() {
    local status
    rm -f "$failed_list"
    env --default-signal=INT,QUIT setsid setpriv --pdeathsig TERM \
        ctest --preset release -j $((2 * $(nproc))) -R "$tests" >"$logs/round-$1.log" 2>&1 </dev/null &
    runner=$!
    wait "$runner"
    status=$?
    runner=''
    [ ! -e "$failed_list" ] || sed 's/^[0-9]*://' "$failed_list" >>"$logs/failed"
    if [ "$status" -ne 0 ] && [ ! -s "$failed_list" ]; then
        tail -n 5 "$logs/round-$1.log" >&2
        fail "ctest ends with status $status: see $logs/round-$1.log"
    fi
    printf 'check-load: round %d of %d: %s\n' "$1" "$repeat" "$(grep 'tests passed' "$logs/round-$1.log")"
}

print_summary() {
    if [ ! -s "$logs/failed" ]; then
        printf 'check-load: all tests passed in all %d rounds, beside %d busy processes\n' \
            "$repeat" "${#busy[@]}"
        return 0
    fi
    printf 'check-load: these tests failed; number of failures in %d rounds, beside %d busy processes:\n' \
        "$repeat" "${#busy[@]}"
    sort "$logs/failed" | uniq -c | sort -k 1,1nr -k 2
    printf 'check-load: the output of the tests is in %s/round-*.log\n' "$logs"
    return 1
}

for value in "REPEAT=$repeat" "LOAD=$load"; do
    case ${value#*=} in
    '' | *[!0-9]* | 0*) [ "$value" = LOAD=0 ] || fail "$value: it takes a number, such as 4" ;;
    esac
done
cmake --preset release --log-level=WARNING >/dev/null &&
    cmake --build --preset release -j "$(nproc)" || fail 'the build fails'
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
print_summary
