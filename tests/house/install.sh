#!/usr/bin/env bash
# Installs into a temporary folder and uses the result from outside the project: a small program
# compiled through pkg-config, the same through find_package, and the installed `harpe` if there is
# one.
#
# Usage: install.sh <build directory>
set -eu
build=$(cd -- "$1" && pwd)
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source=$(dirname -- "$(dirname -- "$here")")
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
prefix=$folder/usr
unset DESTDIR HARPE_LIBRARY PYTHONPATH PKG_CONFIG_PATH LD_LIBRARY_PATH

# Runs the unit's command with its environment, but with another configuration and port, until it
# listens.
starts_as_service() {
    local command=() environment=() program
    read -r -a command <<<"$(sed -n 's/^ExecStart=//p' "$1")"
    [ "${command[-1]}" = --config=-/etc/harpe/serve.conf ] || { echo "${command[*]}?"; return 1; }
    mapfile -t environment < <(sed -n 's/^Environment=//p' "$1")
    mkdir -p "$folder/state" "$folder/credentials"
    echo secret >"$folder/credentials/token"
    (cd "$folder/state" && exec env -i PATH="$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" \
        STATE_DIRECTORY="$folder/state" \
        "${environment[@]//%d/$folder/credentials}" HARPE_PFO_PORT=0 \
        "${command[@]:0:${#command[@]}-1}" --config=-"$2") >"$folder/serve.log" 2>&1 &
    program=$!
    for _ in $(seq 300); do
        grep -q 'http://127' "$folder/serve.log" && break
        kill -0 "$program" 2>/dev/null || break
        sleep 0.1
    done
    kill "$program" 2>/dev/null || true
    wait "$program" && grep -q 'http://127' "$folder/serve.log" &&
        grep -q "clients need the token in $folder/credentials/token" "$folder/serve.log" ||
        { cat "$folder/serve.log"; echo "the unit's command does not start"; return 1; }
}

"$source/scripts/install.sh" "$build" "$prefix" >"$folder/install.log" ||
    { cat "$folder/install.log"; exit 1; }
trap '"$source/scripts/uninstall.sh" "$build" "$prefix" >/dev/null; rm -rf -- "$folder"' EXIT

echo '== what install.sh says is enough'
grep -v '^-- ' "$folder/install.log" >"$folder/said"
[ "$(wc -l <"$folder/said")" -le 3 ] || { cat "$folder/said"; exit 1; }
eval "$(grep '^export ' "$folder/said")"
pc=$(find "$prefix" -name harpe.pc)
[ -n "$pc" ] || { echo 'no harpe.pc was installed'; exit 1; }
(cd / && PYTHONDONTWRITEBYTECODE=1 python3 -c '
import sys, harpe
from harpe._library import lib
print(harpe.version(), lib.path)
assert lib.path.startswith(sys.argv[1]), lib.path' "$prefix")

echo '== pkg-config'
# shellcheck disable=SC2046
gcc -std=c17 -Wall -Werror $(pkg-config --cflags harpe) \
    "$here/consumer/consumer.c" -o "$folder/consumer" $(pkg-config --libs harpe)
"$folder/consumer"
[ "$(pkg-config --modversion harpe)" = "$("$folder/consumer")" ] ||
    { echo 'harpe.pc and library disagree on the version'; exit 1; }

echo '== find_package'
cmake -S "$here/consumer" -B "$folder/build" -G Ninja --log-level=WARNING >/dev/null
cmake --build "$folder/build" >/dev/null
"$folder/build/consumer"

if [ -x "$build/harpe" ]; then
    echo '== program'
    [ -x "$prefix/bin/harpe" ] || { echo 'the program was not installed'; exit 1; }
    "$prefix/bin/harpe" --version

    echo '== harpe run'
    hook=$(cd / && "$prefix/bin/harpe" run -- sh -c 'echo "${PYTHONPATH%%:*}"')
    [ -f "$hook/sitecustomize.py" ] && [ "${hook#"$prefix"}" != "$hook" ] ||
        { echo "harpe run does not find the installed package: $hook"; exit 1; }

    echo '== service'
    unit=$prefix/lib/systemd/system/harpe-serve.service
    grep -q "^ExecStart=$prefix/bin/harpe serve " "$unit" ||
        { echo 'the unit does not start the installed program'; exit 1; }
    # Clients of Zeus cannot run the first schedules of a Perseus that must count the microbatches.
    if grep -q '^Environment=.*Perseus' "$unit" && ! grep -q num_microbatches "$unit"; then
        echo 'the unit starts Perseus without num_microbatches'; exit 1
    fi
    if command -v systemd-analyze >/dev/null; then
        systemd-analyze verify --man=no "$unit"
    fi
    "$prefix/bin/harpe" serve --config "$prefix/share/doc/harpe/serve.conf.example" \
        --print-settings >/dev/null
    grep -q '^LoadCredential=token:/etc/harpe/token$' "$unit" ||
        { echo 'the unit does not take the token that make-token.sh makes'; exit 1; }
    [ -x "$prefix/share/harpe/make-token.sh" ] || { echo 'make-token.sh was not installed'; exit 1; }
    starts_as_service "$unit" "$folder/no.conf"
    starts_as_service "$unit" "$prefix/share/doc/harpe/serve.conf.example"

    echo '== node agent'
    unit=$prefix/lib/systemd/system/harpe-agent.service
    grep -q "^ExecStart=$prefix/libexec/harpe/harpe-agent " "$unit" ||
        { echo 'the unit does not start the installed agent'; exit 1; }
    "$prefix/bin/harpe" agent --help | grep -q -- --state-dir ||
        { echo 'harpe agent does not find the installed agent'; exit 1; }
    if command -v systemd-analyze >/dev/null; then
        systemd-analyze verify --man=no "$unit"
    fi
    for path in agent.conf.example slurm/epilog.sh kubernetes/daemonset.yaml helm/harpe-agent/Chart.yaml \
        container/Containerfile; do
        [ -e "$prefix/share/doc/harpe/$path" ] || { echo "$path was not installed"; exit 1; }
    done
fi
[ -e "$prefix/share/doc/harpe/LICENSE" ] || { echo 'the licence was not installed'; exit 1; }

echo '== uninstall'
(umask 022 && python3 -m compileall -q "$prefix"/lib/python*/*-packages/harpe)
touch "$prefix/bin/another"
"$source/scripts/uninstall.sh" "$build" "$prefix"
[ "$(find "$prefix" ! -type d)" = "$prefix/bin/another" ] ||
    { find "$prefix" ! -type d; echo 'these were left, or too much was removed'; exit 1; }
[ -z "$(find "$prefix" -iname '*harpe*')" ] || { find "$prefix" -iname '*harpe*'; exit 1; }
"$source/scripts/uninstall.sh" "$build" "$prefix" | grep -q 'nothing was installed'
DESTDIR=$folder/stage "$source/scripts/install.sh" "$build" /usr >/dev/null
[ -e "$folder/stage/usr/lib/python3/dist-packages/harpe/__init__.py" ] ||
    { echo 'below /usr the Python package is not where Debian has it'; exit 1; }
DESTDIR=$folder/stage "$source/scripts/uninstall.sh" "$build" /usr
[ -z "$(find "$folder/stage" ! -type d)" ] || { echo 'DESTDIR was not emptied'; exit 1; }
