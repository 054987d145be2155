#!/usr/bin/env bash
# `make uninstall`: removes the files that install.sh has installed below the prefix (and DESTDIR),
# their compiled Python files, and directories that are then empty and named after Harpe.
#
# Usage: uninstall.sh <build directory> <prefix>
set -eu
list=$1/installed
root=${DESTDIR:-}
root=${root%/}/${2#/}
root=${root%/}
PATH=$PATH:/usr/sbin:/sbin

files=()
while IFS= read -r file; do
    case $file in "$root"/*) files+=("$file") ;; esac
done < <(cat "$list" 2>/dev/null)
if [ ${#files[@]} -eq 0 ]; then
    printf 'uninstall: nothing was installed below %s from here\n' "$root"
    exit 0
fi

for file in "${files[@]}"; do
    rm -f -- "$file"
    folder=${file%/*}
    case $file in
    *.py)
        name=${file##*/}
        rm -f -- "$folder/__pycache__/${name%.py}".*.pyc
        rmdir -- "$folder/__pycache__" 2>/dev/null || true
        ;;
    esac
    while [ "$folder" != "${root%/*}" ]; do
        case ${folder#"${root%/*}"} in */[Hh]arpe*) ;; *) break ;; esac
        rmdir -- "$folder" 2>/dev/null || break
        folder=${folder%/*}
    done
done
# grep fails if no line is left
grep -vF -x -f <(printf '%s\n' "${files[@]}") "$list" >"$list.new" || true
mv "$list.new" "$list"
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" -eq 0 ] && command -v ldconfig >/dev/null; then
    ldconfig 2>/dev/null || true
fi
printf 'uninstall: %d files removed below %s\n' ${#files[@]} "$root"
