#!/usr/bin/env bash
# Checks that each public header compiles on its own, as strict C17 and as C++17.
#
# Usage: headers.sh <project root>
set -u
cd -- "$1" || exit 2
status=0
# harpe/mpi.h includes the user's mpi.h.
mpi=$(pkg-config --cflags ompi-c 2>/dev/null || pkg-config --cflags mpich 2>/dev/null)
mpi=${mpi//-I/-isystem }
for header in include/harpe/*.h; do
    name=${header#include/}
    flags=
    if [ "$name" = harpe/mpi.h ]; then
        [ -n "$mpi" ] || continue
        flags=$mpi
    fi
    # shellcheck disable=SC2086 # flags are several words
    printf '#include <%s>\n#include <%s>\nint harpe_nothing;\n' "$name" "$name" |
        gcc -std=c17 -Wall -Wextra -Wpedantic -Werror -Iinclude $flags -fsyntax-only -x c - || status=1
    printf '#include <%s>\n#include <%s>\nint harpe_nothing;\n' "$name" "$name" |
        g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude $flags -fsyntax-only -x c++ - || status=1
done
exit $status
