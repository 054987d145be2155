#!/usr/bin/env bash
# Prints every C file of the project, one per line, relative to the project's directory.
set -eu
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
shopt -s globstar nullglob
for folder in include src emulator tests fuzz bench examples; do
    printf '%s\n' "$folder"/**/*.[ch]
done | sed '/^$/d'
