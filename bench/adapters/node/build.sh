#!/bin/sh
# Installs what the contestants for Node need into TARGET/node, and lays their files there. Quick when nothing changed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
node=${1:?usage: build.sh TARGET}/node
mkdir -p "$node"

want=$(cat "$here/package.json" "$here/package-lock.json" | cksum)
if [ "$(cat "$node/.installed" 2>/dev/null)" != "$want" ]; then
    cp "$here/package.json" "$here/package-lock.json" "$node/"
    # The package `node` fetches the binary of this platform, a package too, when it is installed; the Node that does it may be old.
    (cd "$node" && npm ci --no-audit --no-fund --loglevel=error 1>&2)
    "$node/node_modules/node/bin/node" --version 1>&2
    printf '%s\n' "$want" >"$node/.installed"
fi
cp "$here"/*.mjs "$node/"
