#!/bin/sh
# Starts the gateway with the Node that it was built with, from any directory.
set -eu
self=$0
# `command -p` also works without PATH.
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
lib=$(cd -P -- "${self%/*}/../lib" && pwd)
# NODE_OPTIONS can load files or open an inspector, and so can SIGUSR1. The image already has the code that V8 compiles.
unset NODE_OPTIONS NODE_COMPILE_CACHE
exec "$lib/envd-gateway" --disable-sigusr1 --max-semi-space-size=1 --no-parallel-scavenge "$lib/envd-gateway.cjs" "$@"
