#!/usr/bin/env bash
# `./demo`: shows how a training job on emulated GPUs with the physics of real ones learns to save
# energy, and writes a report of a whole frontier. Takes less than a minute. All output is in
# build/demo, which every run replaces.
#
#   PROFILE=file.csv   your own profile instead of a synthesised one
#   P2P_POWER=watts    the blocking power for your profile (default 75 W; measure it)
#   NUM_MBS=number     microbatches in an iteration of the planned pipeline (default 32)
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

# Prints a command as a user would type it, then runs it.
show() {
    local word typed=harpe
    for word; do
        case $word in *[!A-Za-z0-9_./:,=-]*) word="'$word'" ;; esac
        typed+=" $word"
    done
    printf '  $ %s\n\n' "$typed"
    "$harpe" "$@" | sed 's/^./  &/'
    return "${PIPESTATUS[0]}"
}

if [ -n "${PROFILE:-}" ]; then
    profile=$PROFILE
    case $profile in
    /*) ;;
    *) [ "$start" = "$PWD" ] || profile=$start/$profile ;;
    esac
    [ -r "$profile" ] || { say "demo: PROFILE=$PROFILE: the file does not exist" >&2; exit 1; }
fi
[ -x "$harpe" ] || { say "demo: $harpe does not exist: run ./demo" >&2; exit 1; }
mkdir -p build/demo

if [ -n "${PROFILE:-}" ]; then
    title "1. The profile: $PROFILE"
    if [ -z "$power" ]; then
        power=75
        say "  The blocking power is not given; the demo assumes $power W. Set P2P_POWER to the power"
        say "  that your GPU draws while it waits for its neighbour."
    else
        say "  Blocking power: $power W."
    fi
else
    profile=build/demo/profile.csv
    title '1. A made-up profile: time and energy of every instruction at every frequency'
    show synth --gpu A100 --stages 8 --force --quiet --output "$profile"
    power=${power:-84}
    say '  8 stages of A100-like GPUs. Use your own: ./demo PROFILE=file.csv'
fi

if [ -z "${PROFILE:-}" ]; then
    title '2. A training job on such GPUs, and nobody tells it anything'
    say '  Four ranks, a controller for each GPU and a server run in virtual time, so minutes of training'
    say '  take seconds, and every machine prints the same digits. With --physics real, clocks change'
    say '  late, GPUs differ, and times vary. The scheduler tries frequencies only where they make a step'
    say '  at most 1 % longer in the mean of a round, so the job saves energy while it learns.'
    say
    show synth --gpu A100 --stages 4 --force --quiet --output build/demo/four-stages.csv
    show train-sim --inst-profile build/demo/four-stages.csv --pp 4 --num-mbs 6 --physics real \
        --steps 5
else
    title '2. The training job: left out, its GPUs are made-up ones'
    say '  With your own profile: harpe train-sim --inst-profile file.csv (harpe train-sim --help)'
fi

title '3. The whole frontier of the pipeline of that profile, and plans along it'
show plan --inst-profile "$profile" --num-mbs "$microbatches" --p2p-power "$power" \
    --output-dir build/demo/plans --force

title '4. One plan: least energy, at most 5 % slower'
show choose build/demo/plans --max-slowdown 1.05

title '5. The power limit optimizer in a training loop, on an emulated GPU'
loop=$(dirname -- "$harpe")/examples/example_power_limit_loop
if [ -x "$loop" ]; then
    printf '  $ harpe emulate --gpus 1xV100 --time-scale 20 -- \\\n      %s 1 400 0.05\n\n' "$loop"
    "$harpe" emulate --gpus 1xV100 --time-scale 20 -- "$loop" 1 400 0.05 | sed 's/^./  &/'
    [ "${PIPESTATUS[0]}" -eq 0 ]
    say
    say '  40 steps at each limit. Cost: half the energy, and half what the highest'
    say '  limit would have drawn in that time. Your own job: harpe power-limit --help'
else
    say '  Skipped: the examples are not built.'
fi

printf '\nOpen %sbuild/demo/plans/report.html%s: frontier, pipeline before and after, all plans.\n' \
    "$bold" "$plain"
