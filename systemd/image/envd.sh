#!/bin/sh
# Starts the daemon with the Node that it was built with and with V8's cache of the compiled bundle, wherever this
# directory is. The small young generation: docs/decisions/003-address-space-reservation.md. The thread pool: a thread
# is lost to each start or file on a mount that hangs, for as long as it hangs.
set -eu
bin=$(cd -P -- "${0%/*}" && pwd)
# Node makes the directory of its cache, also where there is one, and would sleep in that until a thaw that is to
# come from this very daemon: the one before it has left a frozen file system.
[ -e "${ENVD_RUNTIME_DIRECTORY:-/run/envd}/fsfrozen.json" ] ||
  export NODE_COMPILE_CACHE="$bin/../lib/cache" NODE_COMPILE_CACHE_PORTABLE=1
export UV_THREADPOOL_SIZE="${UV_THREADPOOL_SIZE:-16}"
exec "$bin/node" --max-semi-space-size=1 "$bin/../lib/envd.js" "$@"
