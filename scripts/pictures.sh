#!/usr/bin/env bash
# Creates the pictures of docs/pictures/ again, with the program itself. Run it after a change to
# plans or pictures, and look at the pictures before you commit them.
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
harpe=$(realpath -- "${HARPE:-build/release/harpe}")
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

"$harpe" synth --stages 4 --imbalance 1.15 --noise 0 --quiet --output "$work/profile.csv"
"$harpe" plan --inst-profile "$work/profile.csv" --num-mbs 8 --p2p-power 84 --quiet \
    --output-dir "$work/plans"
mkdir -p docs/pictures
cp "$work/plans/pipeline_fastest.svg" docs/pictures/pipeline.svg
cp "$work/plans/frontier.svg" docs/pictures/frontier.svg

# Takes minutes.
"$harpe" train-sim --pp 8 --dp 128 --steps 20 --log-steps "$work/steps.jsonl" --json --quiet >"$work/report.json"
planned=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["story"]["planned_round"])' <"$work/report.json")
scripts/picture_of_steps.py "$work/steps.jsonl" "$planned" \
    "Energy of a step, 1,024 emulated A100 (pp 8, dp 128)" >docs/pictures/simulation.svg

# The power of a measured job; it needs the series (docs/measured-job.md), and takes minutes.
if bench/run measured --draws 0 --fast --curves "$work/curves.json" >/dev/null && [ -e "$work/curves.json" ]; then
    scripts/picture_of_power.py "$work/curves.json" "Power of the 64 nodes, means of 2 s" \
        >docs/pictures/measured-job.svg
fi
