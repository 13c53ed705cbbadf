#!/bin/sh
# Installs what the contestants for Python need into TARGET/python, an environment of their own. Quick when nothing changed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${1:?usage: build.sh TARGET}/python

want=$(cksum <"$here/requirements.txt")
if [ "$(cat "$python/.installed" 2>/dev/null)" != "$want" ]; then
    python3 -m venv "$python"
    "$python/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r "$here/requirements.txt" 1>&2
    printf '%s\n' "$want" >"$python/.installed"
fi
