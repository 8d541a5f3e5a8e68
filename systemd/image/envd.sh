#!/bin/sh
# Starts the daemon with the Node and the libraries that it was built with, from any directory.
# The settings are explained in docs/decisions/002-image.md.
set -eu
# By default this signal, which asks for an upgrade, would end the daemon before it can act on it. Node resets this, and the
# preloaded addon then continues.
trap '' USR2
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
# What the guest preloads is linked with the guest's C library, which is another one.
unset LD_PRELOAD LD_AUDIT
# A preloaded addon reserves the address space before V8 has a heap, and reads the limit of descriptors before Node raises it.
# The dynamic loader splits this list at spaces and colons, so a path with one cannot be preloaded.
case $lib in
  *[:\;]*)
    echo "envd: cannot run here: the path '$lib' has a colon or a semicolon, which separate directories of libraries" >&2
    exit 2
    ;;
  *\ *) ;;
  *) export LD_PRELOAD="$lib/build/Release/envd.node" ;;
esac
# NODE_OPTIONS may be set for other programs of the guest. It can load files or open an inspector, and so can SIGUSR1 (see below).
unset NODE_OPTIONS
set -- "$lib/envd" --disable-sigusr1 --expose-gc --max-semi-space-size=2 --no-parallel-scavenge "$lib/envd.cjs" "$@"
# The dynamic loader beside Node starts it, because the one that Node names may be absent or older (docs/decisions/033-own-libraries.md).
exec "$lib/ld.so" --inhibit-cache --library-path "$lib" "$@"
