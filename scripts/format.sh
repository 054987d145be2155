#!/usr/bin/env bash
# Runs clang-format over the C files: -i formats all, --dry-run checks those that have changed. Only version 14 counts, because others format differently: ends
# with status 77, as a skipped test does, if there is none.
#
# Usage: format.sh -i | --dry-run
set -eu
for program in clang-format-14 clang-format ''; do
    case $("$program" --version 2>/dev/null) in *' version 14.'*) break ;; esac
done
[ -n "$program" ] || { echo 'skipped: there is no clang-format 14 (Debian 12 and Ubuntu 22.04 and 24.04 have it)'; exit 77; }
cd -- "$(dirname -- "$0")/.."
if [ "$1" = -i ]; then
    scripts/c_files.sh | xargs "$program" -i --style=file
    exit
fi

# Looks only at files that have changed since they were last found right.
stamps=build/formatted
mkdir -p build
sums=$(scripts/c_files.sh | xargs sha256sum .clang-format)
grep -qsFx "$(head -n 1 <<<"$sums")" "$stamps" || : >"$stamps"
{ grep -vFx -f "$stamps" <<<"$sums" || true; } | cut -c 67- | grep -v '^\.clang' |
    xargs --no-run-if-empty "$program" "$1" -Werror --style=file
printf '%s\n' "$sums" >"$stamps"
