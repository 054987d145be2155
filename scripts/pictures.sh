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
