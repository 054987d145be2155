#!/usr/bin/env bash
# `make demo`: plans a pipeline in front of your eyes and names the report to open. Everything it
# makes is in demo/, replaced on every run.
#
#   PROFILE=file.csv   your own profile instead of a synthesised one
#   P2P_POWER=watts    its blocking power (default 75 W for your own profile: measure it)
#   NUM_MBS=number     microbatches in an iteration (default 32)
set -eu
start=$PWD
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
harpe=${HARPE:-build/release/harpe}
microbatches=${NUM_MBS:-32}
power=${P2P_POWER:-}

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\033[1m' plain=$'\033[0m'
fi

say() { printf '%s\n' "$*"; }
title() { printf '\n%s%s%s\n\n' "$bold" "$*" "$plain"; }

# Shows a command as one would type it, then runs it.
show() {
    printf '  $ harpe %s\n\n' "$*"
    "$harpe" "$@" | sed 's/^./  &/'
    return "${PIPESTATUS[0]}"
}

[ -x "$harpe" ] || { say "demo: $harpe is not there: run make build" >&2; exit 1; }
mkdir -p demo

if [ -n "${PROFILE:-}" ]; then
    profile=$PROFILE
    case $profile in
    /*) ;;
    *) [ "$start" = "$PWD" ] || profile=$start/$profile ;;
    esac
    title "1. The profile: $PROFILE"
    if [ -z "$power" ]; then
        power=75
        say "  Blocking power is not given: $power W assumed. Set P2P_POWER to what your GPU draws"
        say "  while it waits for its neighbour."
    else
        say "  Blocking power: $power W."
    fi
else
    profile=demo/profile.csv
    title '1. A made-up profile: time and energy of every instruction at every frequency'
    show synth --gpu A100 --stages 8 --force --quiet --output "$profile"
    power=${power:-84}
    say '  8 stages of A100-like GPUs. Use your own: make demo PROFILE=file.csv'
fi

title '2. The whole frontier, and plans of real frequencies along it'
show plan --inst-profile "$profile" --num-mbs "$microbatches" --p2p-power "$power" \
    --output-dir demo/plans --force

title '3. One plan: least energy, at most 5 % slower'
show choose demo/plans --max-slowdown 1.05

title '4. The power limit optimizer in a training loop, on an emulated GPU'
loop=$(dirname -- "$harpe")/examples/example_power_limit_loop
if [ -x "$loop" ]; then
    printf '  $ harpe emulate --gpus 1xV100 --time-scale 20 -- \\\n      %s 1 400 0.05\n\n' "$loop"
    "$harpe" emulate --gpus 1xV100 --time-scale 20 -- "$loop" 1 400 0.05 | sed 's/^./  &/'
    [ "${PIPESTATUS[0]}" -eq 0 ]
    say
    say '  40 steps at each limit. Cost: half the energy, and half what the highest'
    say '  limit would have drawn in that time. Your own job: man harpe-power-limit'
else
    say '  Skipped: the examples are not built.'
fi

title '5. The server, and the ranks of a job that fetch their schedules of that plan'
plan=$("$harpe" choose demo/plans --max-slowdown 1.05 | sed -n 's/^\(demo.*[.]py\)$/\1/p')
ranks=$(python3 -c 'import ast, sys; print(len(ast.literal_eval(open(sys.argv[1]).read())))' "$plan")
log=demo/serve.log
rm -rf demo/harpe.db* demo/dump
printf '  $ harpe serve --port 0 --store demo/harpe.db --dump-dir demo/dump \\\n'
printf "      --scheduler-args '{\"solution_path\": \"%s\"}' &\n\n" "$plan"
"$harpe" serve --port 0 --store demo/harpe.db --dump-dir demo/dump --log-level warning \
    --scheduler-args "{\"solution_path\": \"$plan\"}" 2>"$log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
url=
for _ in $(seq 100); do
    url=$(sed -n 's/.*listening on //p' "$log")
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
[ -n "$url" ] || { cat "$log" >&2; exit 1; }
python3 scripts/demo_ranks.py "$url" "$ranks" | sed 's/^./  &/'
kill "$server"
wait "$server" || { cat "$log" >&2; exit 1; }
trap - EXIT
printf '\n  Every answer was in demo/harpe.db before it was given; what was measured is in demo/dump.\n'

printf '\nOpen %sdemo/plans/report.html%s: frontier, pipeline before and after, all plans.\n' \
    "$bold" "$plain"
