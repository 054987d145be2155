#!/usr/bin/env bash
# Runs clang-tidy over src/, on all cores. A file without findings is checked again only if the
# checksum of the file, of all headers, and of .clang-tidy has changed.
#
# Usage: clang_tidy.sh <build directory with compile_commands.json> [<nodes>]
#
# nodes: the static analyzer stops examining a function after this number of steps (default: 225000,
# clang's own). The analyzer takes nearly all of the time. With 50000 the whole takes a third of the
# time, and mistakes that need more steps are not found.
set -eu
build=$(cd -- "$1" && pwd)
export nodes=${2:-225000}
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
shopt -s globstar nullglob
export build stamps=$build/clang-tidy
export common
common=$({ echo "$nodes"; cat .clang-tidy src/**/*.h include/harpe/*.h; } | sha256sum)
mkdir -p "$stamps"

check_file() {
    local file=$1 output stamp
    stamp=$stamps/$({ echo "$common"; cat "$file"; } | sha256sum | cut -c1-32)
    [ ! -e "$stamp" ] || return 0
    if ! output=$(clang-tidy -p "$build" --quiet --extra-arg={-Xclang,-analyzer-config} \
        --extra-arg={-Xclang,max-nodes="$nodes"} "$file" 2>&1); then
        grep -v 'warnings\? generated\|warnings\? treated as error' <<<"$output"
        echo "clang-tidy: $file"
        return 1
    fi
    : >"$stamp"
}
export -f check_file

printf '%s\0' src/**/*.c | xargs -0 -n 1 -P "$(nproc)" bash -c 'check_file "$1"' _
