#!/usr/bin/env bash
# `make docs`: makes the reference of the Python package from its docstrings, in build/docs/python. A
# browser opens it, and any static web server can serve it; it has a search. pdoc makes it, in an
# environment of its own.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
readonly folder=$PWD/build/docs tools=scripts/docs_tools.txt

fail() {
    printf 'docs: %s\n' "$*" >&2
    exit 1
}

if ! cmp -s "$tools" "$folder/tools/installed"; then
    printf 'docs: fetching pdoc with pip: 2 MB\n'
    rm -rf -- "$folder/tools"
    /usr/bin/python3 -m venv "$folder/tools"
    "$folder/tools/bin/pip" install -q --disable-pip-version-check -r "$tools" ||
        fail 'pip cannot install it: check the network, and run make docs again'
    cp "$tools" "$folder/tools/installed"
fi

# The public modules. pdoc by itself would leave out those that the package above does not list.
mapfile -t modules < <(cd python && find harpe -name '*.py' \( -name '__init__.py' -o ! -name '_*' \) ! -path '*/_run/*' |
    sed 's|/__init__||; s|\.py$||; s|/|.|g' | sort)
rm -rf -- "$folder/python"
# pdoc warns about annotations that Debian's Python cannot evaluate; it shows them as they are.
PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore "$folder/tools/bin/pdoc" \
    --no-show-source --output-directory "$folder/python" "${modules[@]}"
printf 'docs: build/docs/python/index.html: %s modules\n' "${#modules[@]}"
