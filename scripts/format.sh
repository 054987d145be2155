#!/usr/bin/env bash
# Runs clang-format over all C files. Only version 14 counts, because others format differently: ends
# with status 77, as a skipped test does, if there is none.
#
# Usage: format.sh -i | --dry-run
set -eu
for program in clang-format-14 clang-format ''; do
    case $("$program" --version 2>/dev/null) in *' version 14.'*) break ;; esac
done
[ -n "$program" ] || { echo 'skipped: there is no clang-format 14 (Debian 12 and Ubuntu 22.04 and 24.04 have it)'; exit 77; }
"$(dirname -- "$0")/c_files.sh" | (cd -- "$(dirname -- "$0")/.." && xargs "$program" "$1" -Werror --style=file)
