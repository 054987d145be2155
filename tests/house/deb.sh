#!/usr/bin/env bash
# Checks the packages that `make deb` has created, unpacked into an empty root: that all files are
# in their places, and that program, library, headers and Python module work together.
#
# Usage: deb.sh [folder with the packages]
set -eu
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source=$(dirname -- "$(dirname -- "$here")")
packages=${1:-$source/build/deb}
version=$("$source/packaging/version.sh")
release=${version%%+*} # of the library's interface
root=$(mktemp -d)
trap 'rm -rf -- "$root"' EXIT

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

for package in harpe harpe-agent libharpe0 libharpe-dev python3-harpe; do
    file=$(echo "$packages/${package}_$version"-*.deb)
    [ -f "$file" ] || fail "no $package of version $version in $packages"
    dpkg-deb -x "$file" "$root"
done

for path in usr/bin/harpe usr/libexec/harpe/harpe-agent lib/systemd/system/harpe-serve.service \
    lib/systemd/system/harpe-agent.service etc/harpe/agent.conf usr/share/doc/harpe/slurm/epilog.sh\* \
    usr/share/doc/harpe/kubernetes/daemonset.yaml usr/share/doc/harpe/helm/harpe-agent/Chart.yaml \
    usr/share/doc/harpe/container/Containerfile usr/share/man/man1/harpe.1.gz \
    usr/share/man/man5/harpe-profile.5.gz usr/share/bash-completion/completions/harpe \
    usr/share/zsh/vendor-completions/_harpe usr/share/fish/vendor_completions.d/harpe.fish \
    usr/share/doc/harpe/README.md\* usr/share/doc/harpe/man/harpe.1.scd\* \
    usr/share/harpe/grafana/harpe.json usr/share/harpe/grafana/harpe-fleet.json \
    usr/share/doc/libharpe-dev/examples/pipeline_loop.c usr/include/harpe/plan.h; do
    # debhelper compresses documents of more than 4 KiB.
    compgen -G "$root/$path" >/dev/null || fail "/$path is in no package"
done
grep -q '^ExecStart=/usr/bin/harpe serve ' "$root/lib/systemd/system/harpe-serve.service" ||
    fail 'the unit does not start /usr/bin/harpe'

echo '== scripts'
control=$root/control
dpkg-deb -e "$(echo "$packages/harpe_$version"-*.deb)" "$control"
for script in postinst prerm postrm; do
    sh -n "$control/$script" || fail "$script is no shell script"
done
grep -q '^    /usr/share/harpe/make-token.sh$' "$control/postinst" || fail 'postinst makes no token'
[ -x "$root/usr/share/harpe/make-token.sh" ] || fail 'there is no make-token.sh'
grep -q "rm -f /etc/harpe/token" "$control/postrm" || fail 'purging leaves the token'
grep -q "deb-systemd-invoke try-restart 'harpe-serve.service'" "$control/postinst" ||
    fail 'an upgrade does not restart the service'
grep -q 'deb-systemd-invoke stop harpe-serve.service' "$control/prerm" ||
    fail 'a removal does not stop the service'
if grep -qs 'deb-systemd-invoke stop' "$control/preinst"; then
    fail 'an upgrade stops the service before it'
fi

echo '== scripts of harpe-agent'
agent=$root/control-agent
dpkg-deb -e "$(echo "$packages/harpe-agent_$version"-*.deb)" "$agent"
for script in postinst prerm postrm; do
    sh -n "$agent/$script" || fail "$script of harpe-agent is no shell script"
done
grep -qx /etc/harpe/agent.conf "$agent/conffiles" || fail 'the rules are no conffile'
# The scripts run on a simulated system with systemd, which only records what they ask of it.
mkdir -p "$root/bin" "$root/systemd"
for command in deb-systemd-helper deb-systemd-invoke systemctl; do
    printf '#!/bin/sh\necho "%s $*" >>"%s/asked"\n' "$command" "$root" >"$root/bin/$command"
    chmod +x "$root/bin/$command"
done
asks() { # what, script, arguments of the script
    local what=$1 script=$2
    shift 2
    sed "s#/run/systemd/system#$root/systemd#g" "$agent/$script" >"$root/script"
    : >"$root/asked"
    PATH=$root/bin:$PATH sh "$root/script" "$@" >/dev/null || fail "$script $* fails"
    grep -qx "deb-systemd-invoke $what harpe-agent.service" "$root/asked" ||
        fail "$script $*: does not $what the agent"
}
asks start postinst configure
asks start postinst configure 0.0.1-1
# Not only a removal: the agent that has changed the GPUs restores them before an upgrade.
asks stop prerm upgrade 0.0.2-1
asks stop prerm remove
grep -q '^ExecStart=/usr/libexec/harpe/harpe-agent ' "$root/lib/systemd/system/harpe-agent.service" ||
    fail 'the unit does not start the agent of /usr/libexec'

library=$(dirname -- "$(echo "$root"/usr/lib/*/libharpe.so.0)")
export LD_LIBRARY_PATH=$library
unset HARPE_LIBRARY HARPE_PROGRAM PYTHONPATH
echo '== program'
"$root/usr/bin/harpe" --version
[ "$("$root/usr/bin/harpe" --version | head -n 1)" = "harpe $version" ] || fail 'of another version'
"$root/usr/bin/harpe" emulate --gpus 2xA40 -- "$root/usr/bin/harpe" gpus --json |
    grep -q A40 || fail 'the emulator is not found'
"$root/usr/bin/harpe" agent --help | grep -q -- --state-dir || fail 'harpe agent does not find the agent'
"$root/usr/bin/harpe" emulate --gpus 2xA40 -- nvidia-smi -L |
    grep -q A40 || fail "the emulator's nvidia-smi is not found"
echo '== library'
gcc -Wall -Werror "-I$root/usr/include" "$here/consumer/consumer.c" -o "$root/consumer" \
    "-L$library" -lharpe
[ "$("$root/consumer")" = "$release" ] || fail 'the library is of another version'
[ "$(PKG_CONFIG_PATH=$library/pkgconfig pkg-config --modversion harpe)" = "$release" ] ||
    fail 'harpe.pc is of another version'
echo '== Python'
(cd / && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/usr/lib/python3/dist-packages python3 -c '
import sys, harpe
from harpe._library import lib
assert harpe.version() == sys.argv[1], harpe.version()
assert lib.path.startswith(sys.argv[2]), lib.path' "$release" "$root")

echo '== upgrade'
# apt decides, on a copy of this system's list in which an older build is installed, and does nothing.
apt=$root/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
decides() { # version that is installed
    local package
    cp /var/lib/dpkg/status "$apt/status"
    for package in harpe libharpe0; do
        printf 'Package: %s\nStatus: install ok installed\nMaintainer: x\nArchitecture: %s\nVersion: %s\nDescription: x\n\n' \
            "$package" "$(dpkg --print-architecture)" "$1" >>"$apt/status"
    done
    apt-get --simulate --no-install-recommends -o Dir::State::status="$apt/status" -o Dir::State::lists="$apt/lists" \
        -o Dir::Cache="$apt" install "$packages/libharpe0_$version"-*.deb
}
for older in "$release-1" "$release+git20261121120000.g0123456789-1"; do
    decides "$older" | grep -qF "Inst libharpe0 [$older] ($version-" || fail "apt does not upgrade $older to $version"
done
dpkg --compare-versions "$version-1" lt "${release%.*}.$((${release##*.} + 1))" || fail "$version is not before the next release"
echo "packages of $version: well"
