#!/usr/bin/env bash
# Checks that `make format` would change no C file.
#
# Usage: format.sh <project root>
set -u
cd -- "$1" || exit 2
scripts/c_files.sh | xargs clang-format --dry-run -Werror --style=file && exit 0
echo 'run: make format'
exit 1
