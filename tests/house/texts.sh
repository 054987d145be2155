#!/usr/bin/env bash
# Checks small promises about the files themselves: the licence line in every C file, and shell
# scripts that bash can parse.
#
# Usage: texts.sh <project root>
set -u
cd -- "$1" || exit 2
shopt -s globstar nullglob
status=0

while read -r file; do
    read -r line <"$file"
    if [ "$line" != '/* SPDX-License-Identifier: Apache-2.0 */' ]; then
        echo "$file: the first line is not the licence line"
        status=1
    fi
done < <(scripts/c_files.sh)

for script in demo check .ci/run bench/run scripts/**/*.sh tests/**/*.sh packaging/**/*.sh; do
    [ -e "$script" ] || continue
    bash -n "$script" || status=1
    if [ ! -x "$script" ]; then
        echo "$script: not executable"
        status=1
    fi
done
exit $status
