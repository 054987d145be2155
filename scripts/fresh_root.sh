#!/usr/bin/env bash
# Runs the README's test command on a bare system: in a new, empty Debian made by debootstrap, as an
# ordinary user with sudo. Then come the parts of ./check --all that FRESH_ROOT_PARTS names, those of
# FRESH_ROOT_CHANGED while there is time, and as root the tests whose result depends on the user. The root
# directory takes about 10 GB below TMPDIR (/var/tmp). It has its own mount and process namespaces; these
# and the directory are removed at the end, also after Ctrl-C.
#
# If the root cannot be made (not root, no debootstrap, no right to mount), the script prints one line
# with the reason and runs ./check or the other command here. With CI=true in the environment it fails
# instead, because the proof is then missing.
#
# Usage: fresh_root.sh [--suite SUITE]                      ./check and the other tests
#        fresh_root.sh [--suite SUITE] [--as-root] COMMAND [ARGUMENT]
#                                             another command, in the copy of the project
#
# SUITE is a release of Debian: bookworm (Debian 12, the default) or trixie (Debian 13).
set -u
readonly self=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/${BASH_SOURCE[0]##*/}
readonly project=${self%/scripts/*}
suite=${FRESH_ROOT_SUITE:-bookworm}
readonly user=tester
readonly folder=${TMPDIR:-/var/tmp}
readonly size_gb=20 # includes a reserve
# Parts of FRESH_ROOT_CHANGED that would end later after the start are left out, so that the whole takes less than an hour.
readonly parts_end_s=3000
export FRESH_ROOT_BEGAN=${FRESH_ROOT_BEGAN:-$EPOCHSECONDS}

root='' child='' environment=() enter=()

# Prints the next step, and the time since the start.
say() {
    local took_s=$((EPOCHSECONDS - FRESH_ROOT_BEGAN))
    printf '== fresh root: %s [%d:%02d]\n' "$*" $((took_s / 60)) $((took_s % 60))
}

fail() {
    printf 'fresh root: %s\n' "$*" >&2
    exit 1
}

# ---- Whether a root can be made ----------------------------------------------------------------

# Prints the reason why no root can be created here, or nothing if there is none.
obstacle() {
    local free_gb
    free_gb=$(df --output=avail -B1G "$folder" | tail -n 1)
    if [ "$(id -u)" -ne 0 ]; then
        echo 'it needs root'
    elif ! unshare --mount --pid --fork --kill-child mount -t proc proc /proc 2>/dev/null; then
        echo 'mounting is not permitted'
    elif [ "${free_gb:-0}" -lt "$size_gb" ]; then
        printf '%d GB are free in %s, but %d are needed\n' "${free_gb:-0}" "$folder" "$size_gb"
    elif ! command -v debootstrap >/dev/null && ! install_debootstrap >&2; then
        echo 'debootstrap is missing and cannot be installed'
    fi
}

install_debootstrap() {
    command -v apt-get >/dev/null || return 1
    echo 'fresh root: installing debootstrap'
    "$project/scripts/apt_get.sh" update -q &&
        "$project/scripts/apt_get.sh" install -y -q --no-install-recommends debootstrap
}

# ---- Configuration from this machine -----------------------------------------------------------

runs_same_suite() { grep -qsx "VERSION_CODENAME=$suite" /etc/os-release; }

# mirror [<part>]: prints the first mirror that apt knows of the suite, or else of this machine's own
# release of Debian, or nothing. <part>: -updates or -security.
mirror() {
    local own
    own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null)
    grep -qsx 'ID=debian' /etc/os-release || own=$suite
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' 2>/dev/null |
        sed -n "s/ $suite${1:-} main\$/ 1/p; s/ $own${1:-} main\$/ 2/p" | sort -s -k 2,2n | cut -d ' ' -f 1 |
        head -n 1
}

# Prints apt's sources of a suite that this machine does not use.
list_sources() {
    local part from
    for part in '' -updates -security; do
        from=$(mirror "$part")
        [ -z "$from" ] || printf 'deb %s %s%s main\n' "$from" "$suite" "$part"
    done
}

# Copies the configuration for the network and for packages: apt's sources, keys and proxies, host
# names, certificates, pip's settings. Does not copy passwords (auth.conf).
copy_configuration() {
    local file
    if runs_same_suite; then
        rm -f -- "$root/etc/apt/sources.list"
        for file in sources.list sources.list.d preferences.d keyrings trusted.gpg.d; do
            [ ! -e "/etc/apt/$file" ] || cp -R -- "/etc/apt/$file" "$root/etc/apt/"
        done
        mkdir -p "$root/usr/share/keyrings"
        cp -R -- /usr/share/keyrings/. "$root/usr/share/keyrings/" 2>/dev/null || true
    elif [ -n "$(mirror)" ]; then
        list_sources >"$root/etc/apt/sources.list"
    fi
    apt-config dump --format '%F "%v";%n' Acquire 2>/dev/null | grep -v IndexTargets \
        >"$root/etc/apt/apt.conf.d/90machine"
    cp -L -- /etc/resolv.conf /etc/hosts "$root/etc/"
    printf '127.0.1.1 %s\n' "$(uname -n)" >>"$root/etc/hosts"
    [ ! -r /etc/pip.conf ] || cp -L -- /etc/pip.conf "$root/etc/"
    mkdir -p "$root/usr/local/share/ca-certificates" "$root/etc/ssl/certs"
    printf '%s\n' /etc/ssl/certs/ca-certificates.crt "${SSL_CERT_FILE:-}" "${CURL_CA_BUNDLE:-}" \
        "${REQUESTS_CA_BUNDLE:-}" "${PIP_CERT:-}" "${NODE_EXTRA_CA_CERTS:-}" | sort -u |
        while read -r file; do
            [ ! -r "$file" ] || sed -e '$a\' -- "$file"
        done >"$root/etc/ssl/certs/ca-certificates.crt"
    # The installation of ca-certificates creates this file again and includes this certificate.
    cp -- "$root/etc/ssl/certs/ca-certificates.crt" "$root/usr/local/share/ca-certificates/machine.crt"
}

# Prints the environment of a command: that of a login, and the settings that give access to the
# network.
list_environment() {
    local name value
    for name in CI JOBS {http,https,ftp,no}_proxy {HTTP,HTTPS,FTP,NO}_PROXY \
        PIP_{INDEX_URL,EXTRA_INDEX_URL,TRUSTED_HOST,DEFAULT_TIMEOUT,RETRIES}; do
        [ -z "${!name:-}" ] || printf '%s=%s\n' "$name" "${!name}"
    done
    command -v npm >/dev/null || return 0
    for name in registry proxy https-proxy noproxy; do
        value=$(npm config get "$name" 2>/dev/null)
        case $value in
        '' | null | undefined) ;;
        *) printf 'npm_config_%s=%s\n' "${name//-/_}" "$value" ;;
        esac
    done
}

# Prints the project's files without those that git ignores, each followed by a zero byte.
list_files() {
    cd -- "$project" || return
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . \( -path ./build -o -path ./.git -o -path ./python/build -o -name '*.egg-info' \) -prune -o \
            -type f -print0
    fi | while IFS= read -r -d '' file; do
        [ ! -e "$file" ] || printf '%s\0' "$file" # git also lists deleted files
    done
}

copy_project() {
    local home=$root/home/$user
    mkdir -p "$home/harpe"
    list_files | tar -C "$project" --null -T - -c | tar -C "$home/harpe" -x || return
    if [ -d "$project/../shared" ]; then
        cp -RL -- "$project/../shared" "$home/shared" || return
        chmod -R u+w "$home/shared"
    fi
}

# ---- Inside the namespaces: process 1, root --------------------------------------------------------

# Packages are installed without waiting for the disk.
make_root() {
    local from
    from=$(mirror)
    mkdir -p "$root/etc/dpkg/dpkg.cfg.d" && echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/fresh-root" || return
    debootstrap --variant=minbase "$suite" "$root" ${from:+"$from"} >"$root.log" 2>&1
}

# Makes a new device file in the new root directory, so that a test that runs as root cannot change
# the machine's. Where the system does not permit that, the root directory gets the machine's device
# file.
make_device() {
    local type
    type=$(stat -c '0x%t 0x%T' "/dev/$1")
    # shellcheck disable=SC2086 # two numbers
    if mknod -m 666 "$root/dev/$1" c $type 2>/dev/null &&
        { [ "$1" = tty ] || : <"$root/dev/$1"; } 2>/dev/null; then
        return 0
    fi
    rm -f -- "$root/dev/$1"
    : >"$root/dev/$1" && mount --bind "/dev/$1" "$root/dev/$1"
}

mount_devices() {
    local name
    mount --bind "$root" "$root" && mount -t proc proc "$root/proc" &&
        { mount -t sysfs -o ro sysfs "$root/sys" || mount --rbind /sys "$root/sys"; } &&
        mount -t tmpfs -o mode=755 tmpfs "$root/dev" && mkdir "$root/dev/pts" "$root/dev/shm" &&
        mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts" &&
        mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm" || return
    for name in null zero full random urandom tty; do
        [ -e "/dev/$name" ] || continue
        make_device "$name" || return
    done
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for name in 0:stdin 1:stdout 2:stderr; do
        ln -s "/proc/self/fd/${name%:*}" "$root/dev/${name#*:}"
    done
}

# Makes this root the root of the process too, because a user namespace cannot be created in a
# chroot. If that is not possible, commands run in a chroot.
change_root() {
    enter=(chroot "$root")
    cd -- "$root" && pivot_root . . 2>/dev/null || return 0
    umount -l . && cd / && enter=()
}

# in_root <user> <command...>: runs the command in the new root, in the copy of the project, with
# the environment of a login.
in_root() {
    local who=$1 home=/root path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    local -a become=()
    shift
    if [ "$who" != root ]; then
        home=/home/$who path=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games
        become=(setpriv --reuid "$who" --regid "$who" --init-groups)
    fi
    "${enter[@]}" /usr/bin/env -i "HOME=$home" "USER=$who" "LOGNAME=$who" SHELL=/bin/bash "PATH=$path" \
        "${environment[@]}" "${become[@]}" \
        sh -c 'cd -- "$1" && shift && exec "$@"' sh "/home/$user/harpe" "$@" </dev/null
}

# Prepares an ordinary user whose sudo asks for no password, and a system without services.
prepare_root() {
    copy_configuration || return
    mapfile -t environment < <(list_environment)
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    chroot "$root" useradd --create-home --shell /bin/bash "$user" || return
    copy_project || return
    chroot "$root" chown -R "$user:$user" "/home/$user" || return
    mkdir -p "$root/etc/sudoers.d"
    printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$user" >"$root/etc/sudoers.d/$user"
    chmod 440 "$root/etc/sudoers.d/$user"
    mount_devices && change_root || return
    in_root root sh -c '{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
        --no-install-recommends sudo; } >/tmp/log 2>&1 || { tail -n 5 /tmp/log >&2; exit 1; }; rm /tmp/log'
}

# The summary of ctest comes last.
# shellcheck disable=SC2086 # names of parts
run_checks() {
    say './check as an ordinary user'
    in_root "$user" ./check || return
    if [ -n "${FRESH_ROOT_PARTS:-}" ]; then
        say "parts of ./check --all as an ordinary user: $FRESH_ROOT_PARTS"
        in_root "$user" ./check --all $FRESH_ROOT_PARTS || return
    fi
    if [ -n "${FRESH_ROOT_CHANGED:-}" ]; then
        say "parts whose folders the last changes touch: $FRESH_ROOT_CHANGED"
        in_root "$user" env CHECK_UNTIL=$((FRESH_ROOT_BEGAN + parts_end_s)) ./check --all $FRESH_ROOT_CHANGED || return
    fi
    say 'as root: the tests whose result depends on the user'
    in_root root scripts/run_tests.py release -L '^user$' -j 16
}

run_inside() {
    say 'preparing the root'
    prepare_root || fail 'the root cannot be prepared'
    case ${1:-} in
    '') run_checks ;;
    --as-root) in_root root "${@:2}" ;;
    *) in_root "$user" "$@" ;;
    esac
}

# ---- Outside ---------------------------------------------------------------------------------------

# Runs a function of this file as process 1 of new namespaces, which end with this script even if it
# is killed. A shell's background processes ignore Ctrl-C; tests must not.
in_namespaces() {
    env --default-signal=INT,QUIT setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child \
        "$BASH" "$self" --inside "$root" "$@" </dev/null &
    child=$!
    wait "$child"
    local status=$?
    child=''
    return "$status"
}

# Ends all processes in the namespaces by ending process 1, and removes the root.
clean_up() {
    local first=''
    trap '' INT TERM HUP
    if [ -n "$child" ]; then
        read -r first 2>/dev/null <"/proc/$child/task/$child/children"
        kill -KILL ${first:-"$child"} 2>/dev/null
        wait "$child" 2>/dev/null
    fi
    [ -n "$root" ] || return 0
    rm -rf --one-file-system -- "$root" "$root.log"
}

run_here() {
    local -a command=("$@")
    [ ${#command[@]} -gt 0 ] || command=(./check)
    if [ "${CI:-false}" != false ]; then
        fail "cannot create an empty Debian ($reason), so nothing is proven. Without CI=$CI, ${command[*]} would run on this machine"
    fi
    printf 'fresh root: cannot create an empty Debian (%s): running %s on this machine\n' \
        "$reason" "${command[*]}"
    cd -- "$project" || exit
    exec "${command[@]}" </dev/null
}

main() {
    local reason
    local -a who=()
    while :; do
        case ${1:-} in
        -h | --help) sed -n '2,/^set/s/^#\( \|$\)//p' "$self" && return 0 ;;
        --suite)
            case ${2:-} in '' | *[!a-z]*) fail '--suite: which release of Debian? (--help)' ;; esac
            suite=$2
            shift 2
            ;;
        --as-root)
            [ $# -gt 1 ] || fail '--as-root: which command? (--help)'
            who=(--as-root)
            shift
            ;;
        -*) fail "$1: there is no such option (--help)" ;;
        *) break ;;
        esac
    done
    export FRESH_ROOT_SUITE=$suite
    reason=$(obstacle)
    [ -z "$reason" ] || run_here "$@"

    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    root=$(mktemp -d "$folder/harpe-root.XXXXXX") || fail 'no directory for it'
    chmod 755 "$root"
    say "debootstrap $suite in $root"
    if ! in_namespaces make_root; then
        reason="debootstrap failed: $(tail -n 1 "$root.log")"
        clean_up
        trap - EXIT HUP INT TERM
        run_here "$@"
    fi
    in_namespaces run_inside "${who[@]}" "$@"
}

# The shell reads nothing of this file after this line, because the file may be edited while the
# script runs.
if [ "${1:-}" = --inside ]; then
    root=$2
    shift 2
    "$@"
    exit
else
    main "$@"
    exit
fi
