#!/usr/bin/env bash
# `make install`: installs Harpe, writes a list of the installed files for uninstall.sh, and updates
# the cache of the dynamic loader. At the end it prints the settings that the user's shell needs to
# find everything, if any are missing. With DESTDIR it only writes files.
#
# Usage: install.sh <build directory> <prefix>
set -eu
build=$(cd -- "$1" && pwd)
prefix=$2
destdir=${DESTDIR:-}
PATH=$PATH:/usr/sbin:/sbin # ldconfig is in one of these, which are not in the PATH of every user

cmake --install "$build" --prefix "$prefix"

# CMake's own manifest lists only the files of the last installation.
touch "$build/installed"
while IFS= read -r file || [ -n "$file" ]; do
    printf '%s\n' "${destdir%/}$file"
done <"$build/install_manifest.txt" | sort -u - "$build/installed" >"$build/installed.new"
mv "$build/installed.new" "$build/installed"
[ -z "$destdir" ] || exit 0

# Prints the directory of the file that the manifest lists under that name.
folder_of() { dirname -- "$(grep -m 1 "/$1\$" "$build/install_manifest.txt")"; }
bin=$(folder_of 'bin/harpe')
lib=$(folder_of 'libharpe\.so\.0')
pc=$(folder_of 'harpe\.pc')
python=$(dirname -- "$(folder_of 'harpe/__init__\.py')")

# Returns true if the loader searches this directory. One directory may have several names, such as
# /lib and /usr/lib.
loader_covers() {
    local folder
    while IFS=: read -r folder _; do
        case $folder in /*) [ "$folder" -ef "$1" ] && return ;; esac
    done < <(ldconfig -N -X -v 2>/dev/null)
    return 1
}

exports=()
lacks() { exports+=("$1=\"$2\${$1:+:\$$1}\""); }

case :$PATH: in *:"$bin":*) ;; *) lacks PATH "$bin" ;; esac
loader=
if command -v ldconfig >/dev/null && loader_covers "$lib"; then
    if [ "$(id -u)" -eq 0 ]; then
        ldconfig 2>/dev/null || loader='ldconfig failed'
    elif ! ldconfig -p | grep -qF " $lib/libharpe.so.0"; then
        loader="as root, run ldconfig: the loader does not know $lib/libharpe.so.0 yet"
    fi
else
    case :${LD_LIBRARY_PATH:-}: in *:"$lib":*) ;; *) lacks LD_LIBRARY_PATH "$lib" ;; esac
fi
python3 -c 'import sys; sys.exit(sys.argv[1] not in sys.path)' "$python" 2>/dev/null ||
    lacks PYTHONPATH "$python"
[ "$(pkg-config --variable=pcfiledir harpe 2>/dev/null)" = "$pc" ] || lacks PKG_CONFIG_PATH "$pc"

# CMake's find_package also searches the directories beside those in PATH.
[ -z "$loader" ] || printf 'install: %s\n' "$loader"
if [ ${#exports[@]} -gt 0 ]; then
    printf 'install: put this into your shell, for example into ~/.profile:\nexport %s\n' "${exports[*]}"
fi
