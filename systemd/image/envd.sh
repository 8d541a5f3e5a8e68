#!/bin/sh
# Starts the daemon with the Node that it was built with, from any directory.
# The settings are explained in docs/decisions/002-image.md.
set -eu
self=$0
# `command -p` also works without PATH.
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
lib=$(cd -P -- "${self%/*}/../lib" && pwd)
# It would make a directory at each start, which blocks on a frozen file system.
unset NODE_COMPILE_CACHE
# What /upgrade starts: this path, also when it has become a link to another version.
case $0 in /*) export ENVD_PROGRAM="${ENVD_PROGRAM:-$0}" ;; esac
# Each start or file on an unresponsive mount occupies a pool thread; the default of 4 would be too few.
export UV_THREADPOOL_SIZE="${UV_THREADPOOL_SIZE:-16}"
# The addon reserves the address space before V8 has a heap, and reads the limit of descriptors before Node raises it.
# The loader splits this list at spaces and colons.
case $lib in *[\ :]*) ;; *) export LD_PRELOAD="$lib/build/Release/envd.node" ;; esac
# NODE_OPTIONS may be set for programs of the guest: it can load files or open an inspector. So can SIGUSR1, see below.
unset NODE_OPTIONS
# The loader lists the libraries in 1 ms; when one seems to be missing, a run of the program decides.
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
