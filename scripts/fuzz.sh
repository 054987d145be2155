#!/usr/bin/env bash
# Runs every libFuzzer target for FUZZ_SECONDS, from the seeds in fuzz/corpus/<target>. New inputs
# go to build/fuzz/corpus, crashes to build/fuzz/crashes. The exit status is not 0 if a crash was
# found.
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
seconds=${FUZZ_SECONDS:-300}

cmake --preset fuzz --log-level=WARNING >/dev/null
cmake --build --preset fuzz -j "${JOBS:-$(nproc)}"

status=0
for target in build/fuzz/fuzz/fuzz_*; do
    [ -f "$target" ] && [ -x "$target" ] || continue
    name=${target##*/fuzz_}
    grown=build/fuzz/corpus/$name
    crashes=build/fuzz/crashes/$name
    mkdir -p "$grown" "$crashes"
    seeds=()
    [ ! -d "fuzz/corpus/$name" ] || seeds=("fuzz/corpus/$name")
    printf '== fuzz: %s for %s s\n' "$name" "$seconds"
    "$target" -max_total_time="$seconds" -artifact_prefix="$crashes/" -timeout=10 \
        -print_final_stats=1 "$grown" "${seeds[@]}" || status=1
done
exit $status
