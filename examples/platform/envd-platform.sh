#!/bin/sh
# Starts a platform on this machine with the Node and the gateway of this directory. As root, with crun, mmdebstrap and iproute2.
set -eu
self=$0
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
top=$(cd -P -- "${self%/*}/.." && pwd)
unset NODE_OPTIONS NODE_COMPILE_CACHE
exec "$top/lib/envd-gateway" --disable-sigusr1 "$top/share/platform/main.ts" "$@"
