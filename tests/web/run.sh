#!/usr/bin/env bash
# Installs the packages of the browser tests into a folder of the build, once, and runs a test of
# this directory. Exits with 77 and a line if node, npm, the browser or the packages are not available.
#
# Usage: run.sh <folder for packages> <test.mjs> [chromium|firefox]
set -eu
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
packages=$1

skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}

HARPE_WEB_BROWSER=${3:-chromium}
CHROMIUM=$(command -v chromium) || [ "$HARPE_WEB_BROWSER" != chromium ] || skip 'there is no chromium'
FIREFOX=$(command -v firefox-esr) || [ "$HARPE_WEB_BROWSER" != firefox ] || skip 'there is no firefox-esr'
command -v node >/dev/null || skip 'there is no node'
command -v npm >/dev/null || skip 'there is no npm'

mkdir -p "$packages"
if ! cmp -s "$here/package-lock.json" "$packages/done"; then
    cp "$here/package.json" "$here/package-lock.json" "$packages"
    npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund >"$packages/npm.log" 2>&1 ||
        skip "npm cannot fetch the packages: $(grep -m 1 'npm err' -i "$packages/npm.log" || tail -n 1 "$packages/npm.log")"
    cp "$here/package-lock.json" "$packages/done"
fi

export CHROMIUM FIREFOX HARPE_WEB_BROWSER HARPE_WEB_PACKAGES=$packages
exec node "$here/$2"
