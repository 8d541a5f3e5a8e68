#!/bin/sh
# Starts the daemon with the Node that it was built with and with V8's cache of the compiled bundle, wherever this
# directory is. What is set here and why: docs/decisions/010-image-bundle.md.
set -eu
self=$0
# Where there is no PATH, too.
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
lib=$(cd -P -- "${self%/*}/../lib" && pwd)
# Node makes the directory of its cache, also where there is one, and would sleep in that until a thaw that is to
# come from this very daemon: the one before it has left a frozen file system.
[ -e "${ENVD_RUNTIME_DIRECTORY:-/run/envd}/fsfrozen.json" ] ||
  export NODE_COMPILE_CACHE="$lib/cache" NODE_COMPILE_CACHE_PORTABLE=1
# A thread is lost to each start or file on a mount that hangs, for as long as it hangs.
export UV_THREADPOOL_SIZE="${UV_THREADPOOL_SIZE:-16}"
# The addon reserves the address space before V8 has a heap, and learns the limit of descriptors before Node raises it.
# The loader splits its list at blanks and colons.
case $lib in *[\ :]*) ;; *) export LD_PRELOAD="$lib/build/Release/envd.node" ;; esac
# Meant for programs of the guest: it can load files of theirs, or open an inspector, which SIGUSR1 would do as well.
unset NODE_OPTIONS
# The loader lists what it finds in 1 ms; when something seems to be missing, a run decides.
found=$(LD_TRACE_LOADED_OBJECTS=1 "$lib/envd" --version 2>&1) || found='not found'
case $found in
  *'not found'*)
    said=$("$lib/envd" --version 2>&1) || {
      needed='glibc 2.34 or newer (not musl), libstdc++ and libatomic'
      echo "envd: cannot run here: it needs $needed; Debian: apt-get install libstdc++6 libatomic1 ($said)" >&2
      exit 2
    }
    ;;
esac
exec "$lib/envd" --disable-sigusr1 --max-semi-space-size=1 "$lib/envd.js" "$@"
