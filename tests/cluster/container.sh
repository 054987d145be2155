#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the agent's container image from the packages of `make deb`, without a registry and without a
# container daemon, and runs the agent in it on emulated GPUs. Takes minutes and fetches a minimal
# Debian, so it is not part of `make check`. Needs root, buildah and debootstrap.
#
# Usage: container.sh [folder with the packages]
set -eu
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source=$(dirname -- "$(dirname -- "$here")")
packages=${1:-$source/build/deb}
for program in buildah debootstrap; do
    command -v "$program" >/dev/null || { echo "skipped: $program not found: apt-get install $program"; exit 77; }
done

"$source/packaging/container/build.sh" --debootstrap "$packages" >/dev/null
version=$(sed -n 's/^project(Harpe VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
container=$(buildah from --pull-never "harpe-agent:$version")
trap 'buildah rm "$container" >/dev/null' EXIT

in_image() { buildah run --isolation chroot "$container" -- "$@"; }

echo '== the image'
[ "$(in_image harpe --version | head -n 1)" = "harpe $("$source/packaging/version.sh")" ]
[ "$(buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' "harpe-agent:$version")" = \
    '[harpe] [agent]' ]
if in_image test -e /etc/harpe/token 2>/dev/null; then
    echo 'the image has a token'
    exit 1
fi
in_image sh -euc 'for file in /tmp/packages /var/lib/apt/lists/*_Packages; do [ ! -e "$file" ]; done'

echo '== the agent in it'
# shellcheck disable=SC2016
in_image harpe emulate --gpus 1xA40 -- sh -euc '
    export HARPE_AGENT_SOCKET=/run/harpe/agent.sock
    mkdir -p /run/harpe
    harpe agent >/run/harpe/log 2>&1 &
    agent=$!
    until harpe agent status >/dev/null 2>&1; do
        kill -0 $agent || { cat /run/harpe/log; exit 1; }
        sleep 0.1
    done
    harpe agent hold --clock 900 -- harpe agent status | grep clocks
    kill $agent
    wait $agent
    grep "the GPU is restored" /run/harpe/log'
echo "image of $version: well"
