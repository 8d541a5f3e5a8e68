#!/bin/sh
# Starts the daemon with the Node that it was built with, from any directory.
# The settings are explained in docs/decisions/002-image.md.
set -eu
self=$0
# `command -p` also works without PATH.
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
lib=$(cd -P -- "${self%/*}/../lib" && pwd)
# Node would create this cache's directory at each start, which blocks on a frozen file system.
unset NODE_COMPILE_CACHE
# /upgrade starts this path, which may have become a link to another version by then.
case $0 in /*) export ENVD_PROGRAM="${ENVD_PROGRAM:-$0}" ;; esac
# Each call to an unresponsive mount occupies a thread of the pool, so the default of 4 threads is too few.
export UV_THREADPOOL_SIZE="${UV_THREADPOOL_SIZE:-16}"
# A preloaded addon reserves the address space before V8 has a heap, and reads the limit of descriptors before Node raises it.
# The loader splits this list at spaces and colons, so a path with one cannot be preloaded.
case $lib in *[\ :]*) ;; *) export LD_PRELOAD="$lib/build/Release/envd.node" ;; esac
# NODE_OPTIONS may be set for other programs of the guest. It can load files or open an inspector, and so can SIGUSR1 (see below).
unset NODE_OPTIONS
# The loader lists the libraries quickly. When one seems to be missing, a run of the program decides.
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
exec "$lib/envd" --disable-sigusr1 --expose-gc --max-semi-space-size=2 --no-parallel-scavenge "$lib/envd.cjs" "$@"
