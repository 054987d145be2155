#!/usr/bin/env bash
# Builds two libraries that the wheel bundles, because those of Debian's packages would need too many
# others: curl for HTTP alone, and libpq without Kerberos and LDAP. The sources are Debian's source
# packages, with Debian's patches and security updates; apt checks their signatures. Nothing on the
# system changes. The result is used again until Debian publishes other versions or this file changes.
#
# Usage: libraries.sh <directory>   makes <directory>/prefix and <directory>/prefix/licences
set -euo pipefail
readonly self=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/${BASH_SOURCE[0]##*/}
readonly sources=(curl postgresql-15)
mkdir -p -- "$1"
folder=$(cd -- "$1" && pwd)
readonly folder prefix=$folder/prefix
readonly jobs=${JOBS:-$(nproc)}

export CFLAGS="-O2 -g0 -fstack-protector-strong -D_FORTIFY_SOURCE=2 -include ${self%/*}/glibc.h"
CFLAGS+=" -ffile-prefix-map=$folder=. -fno-asynchronous-unwind-tables"
export LDFLAGS='-Wl,-z,relro,-z,now'
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

fail() {
    printf 'wheel: %s\n' "$*" >&2
    exit 1
}

# ---- Sources -----------------------------------------------------------------------------------

# apt with its own lists, and with the source packages of the Debian suites that this machine uses.
apt() {
    apt-get -o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache" \
        -o APT::Sandbox::User=root "$@" </dev/null
}

prepare_apt() {
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r "$keys" ] && keys="[signed-by=$keys] " || keys=''
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Identifier: Packages' 'Origin: Debian' | sort -u | sed "s|^|deb-src $keys|" \
        >"$folder/apt/sources.list"
    [ -s "$folder/apt/sources.list" ] || fail 'apt knows no Debian suite on this machine'
    apt update -qq >"$folder/apt.log" 2>&1 || fail "apt-get update: $(tail -n 1 "$folder/apt.log")"
}

# Prints the address and size of each file of the source packages.
list_files() {
    local name
    for name in "${sources[@]}"; do
        apt source -qq --print-uris --download-only "$name" | awk '{print $1, $3}'
    done
}

# A mirror may lack the newest security update. Then the version of the release is taken, and a line
# says so.
fetch() {
    local name=$1 suite
    apt source -qq "$name" >"$folder/apt.log" 2>&1 && return
    suite=$(awk '{print $(NF - 1)}' "$folder/apt/sources.list" | sort | head -n 1)
    printf 'wheel: the newest %s cannot be fetched, so the one of %s is used (%s)\n' "$name" "$suite" \
        "$(grep '^E: ' "$folder/apt.log" | head -n 1)"
    apt source -qq "$name/$suite" >>"$folder/apt.log" 2>&1 ||
        fail "apt-get source $name: $(tail -n 1 "$folder/apt.log")"
}

# Files that an earlier call has fetched are not fetched again.
unpack() {
    local name
    rm -rf -- "$prefix" "$folder"/source/*/
    mkdir -p "$folder/source" "$prefix/licences"
    cd -- "$folder/source"
    for name in "${sources[@]}"; do fetch "$name"; done
    cd -- "$folder"
}

# ---- Builds ------------------------------------------------------------------------------------

by_cmake() {
    local source=$1
    shift
    cmake -S "$source" -B "$source/made" -G Ninja -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=None -DBUILD_TESTING=OFF "$@"
    cmake --build "$source/made" -j "$jobs"
    cmake --install "$source/made"
}

build_curl() {
    by_cmake . -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON -DBUILD_CURL_EXE=OFF -DCURL_USE_LIBSSH2=OFF \
        -DUSE_LIBIDN2=OFF -DUSE_NGHTTP2=OFF -DCURL_USE_LIBPSL=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF \
        -DCURL_USE_GSSAPI=OFF -DENABLE_MANUAL=OFF -DCURL_CA_PATH=none \
        -DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
}

build_postgresql() {
    ./configure --prefix="$prefix" --sysconfdir=/etc/postgresql-common --disable-rpath \
        --with-openssl --without-readline --without-zlib --without-icu
    make -C src/backend generated-headers
    local part
    for part in src/include src/common src/port src/interfaces/libpq; do
        make -C "$part" -j "$jobs"
    done
    make -C src/include install
    make -C src/interfaces/libpq install
}

build() {
    local name=$1 source
    source=$(find "$folder/source" -maxdepth 1 -type d -name "${name}-[0-9]*" | head -n 1)
    [ -n "$source" ] || fail "Debian's source package $name has an unexpected name"
    printf 'wheel: building %s\n' "${source##*/}"
    # In the background, because set -e has no effect in a command before ||.
    (cd -- "$source" && set -x && "build_${name%-15}") >"$folder/$name.log" 2>&1 </dev/null &
    wait $! || fail "$name cannot be built: see $folder/$name.log"
    mkdir -p "$prefix/licences/$name"
    dpkg-parsechangelog -l "$source/debian/changelog" -S Version >"$prefix/licences/$name/version"
    cp -- "$source/debian/copyright" "$prefix/licences/$name/"
}

main() {
    local files state name
    command -v dpkg-source >/dev/null || fail 'dpkg-source is missing: apt install dpkg-dev'
    prepare_apt
    files=$(list_files)
    state=$(cat -- "$self" <(printf '%s\n' "$files") | sha256sum)
    [ "$state" != "$(cat "$folder/state" 2>/dev/null)" ] || return 0
    printf 'wheel: fetching the sources of %s: %d MB\n' "${sources[*]}" \
        $(($(awk '{sum += $2} END {print sum}' <<<"$files") / 1000000))
    unpack
    for name in "${sources[@]}"; do build "$name"; done
    find "$prefix/lib" -name '*.so.*' -type f -exec strip --strip-unneeded {} +
    rm -rf -- "$folder"/source/*/
    printf '%s\n' "$state" >"$folder/state"
}

main
