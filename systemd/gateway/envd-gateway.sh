#!/bin/sh
# Starts the gateway with the Node that it was built with and with V8's cache of the compiled bundle, from any directory.
set -eu
self=$0
# `command -p` also works without PATH.
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
lib=$(cd -P -- "${self%/*}/../lib" && pwd)
export NODE_COMPILE_CACHE="$lib/cache" NODE_COMPILE_CACHE_PORTABLE=1
# They can load files or open an inspector; so can SIGUSR1.
unset NODE_OPTIONS
exec "$lib/envd-gateway" --disable-sigusr1 --max-semi-space-size=1 --no-parallel-scavenge "$lib/envd-gateway.cjs" "$@"
