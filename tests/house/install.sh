#!/usr/bin/env bash
# Installs into a temporary folder and uses the result as a stranger would: a small program compiled
# through pkg-config, the same through find_package, and the installed `harpe` where there is one.
#
# Usage: install.sh <build directory>
set -eu
build=$(cd -- "$1" && pwd)
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
prefix=$folder/usr

cmake --install "$build" --prefix "$prefix" >"$folder/install.log" ||
    { cat "$folder/install.log"; exit 1; }

pc=$(find "$prefix" -name harpe.pc)
[ -n "$pc" ] || { echo 'no harpe.pc was installed'; exit 1; }
lib=$(dirname -- "$(dirname -- "$pc")")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib

echo '== pkg-config'
# shellcheck disable=SC2046
gcc -std=c17 -Wall -Werror $(pkg-config --cflags harpe) \
    "$here/consumer/consumer.c" -o "$folder/consumer" $(pkg-config --libs harpe)
"$folder/consumer"
[ "$(pkg-config --modversion harpe)" = "$("$folder/consumer")" ] ||
    { echo 'harpe.pc and library disagree on the version'; exit 1; }

echo '== find_package'
cmake -S "$here/consumer" -B "$folder/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    --log-level=WARNING >/dev/null
cmake --build "$folder/build" >/dev/null
"$folder/build/consumer"

if [ -x "$build/harpe" ]; then
    echo '== program'
    [ -x "$prefix/bin/harpe" ] || { echo 'the program was not installed'; exit 1; }
    "$prefix/bin/harpe" --version

    echo '== service'
    unit=$prefix/lib/systemd/system/harpe-serve.service
    grep -q "^ExecStart=$prefix/bin/harpe serve " "$unit" ||
        { echo 'the unit does not start the installed program'; exit 1; }
    if command -v systemd-analyze >/dev/null; then
        systemd-analyze verify --man=no "$unit"
    fi
    "$prefix/bin/harpe" serve --config "$prefix/share/doc/harpe/serve.conf.example" \
        --print-settings >/dev/null
fi
[ -e "$prefix/share/doc/harpe/LICENSE" ] || { echo 'the licence was not installed'; exit 1; }
