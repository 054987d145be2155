#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the version of the source tree for packages, which grows with the commits. Needs no git: a
# tree without git has the version in the PKG-INFO of the source distribution, or that of CMakeLists.txt.
#
# The number in CMakeLists.txt, such as 0.1.0, is the last that was given away. The commit that changes
# it is the release and has the tag v0.1.0; its version is 0.1.0. The version of every later commit is
# 0.1.0+gitTIME.gCOMMIT with its time of commit in UTC. For dpkg and for pip (PEP 440), "+" sorts after
# 0.1.0, also after Debian's 0.1.0-1, and before 0.1.1; "~" would sort before the 0.1.0-1 that machines
# already have. TIME always has 14 digits, so it grows as text, too. A shallow clone knows it, but not
# the number of commits. "g" makes COMMIT a word, because pip removes zeros before a number.
set -eu
cd -- "$(dirname -- "$0")/.."
base=$(sed -n 's/^project(Harpe VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
version=$(sed -n "s/^Version: \($base\(+.*\)\{0,1\}\)\$/\1/p" PKG-INFO 2>/dev/null || true)
if [ -e .git ]; then
    if git describe --tags --exact-match --match "v$base" HEAD >/dev/null 2>&1; then
        version=$base
    elif commit=$(TZ=UTC0 git log -1 --format=%cd.g%H --date=format-local:%Y%m%d%H%M%S); then
        version=$base+git$(printf '%.26s' "$commit")
    fi
fi
printf '%s\n' "${version:-$base}"
