#!/usr/bin/env bash
# Checks that each public header compiles on its own, as strict C17 and as C++17.
#
# Usage: headers.sh <project root>
set -u
cd -- "$1" || exit 2
status=0
for header in include/harpe/*.h; do
    name=${header#include/}
    printf '#include <%s>\n#include <%s>\nint harpe_nothing;\n' "$name" "$name" |
        gcc -std=c17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c - || status=1
    printf '#include <%s>\n#include <%s>\nint harpe_nothing;\n' "$name" "$name" |
        g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ - || status=1
done
exit $status
