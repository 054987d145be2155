#!/usr/bin/env bash
# Checks that `make format` would change no C file. Needs clang-format 14.
#
# Usage: format.sh <project root>
set -u
cd -- "$1" || exit 2
scripts/format.sh --dry-run && exit 0
status=$?
[ "$status" -eq 77 ] || echo 'run: make format'
exit "$status"
