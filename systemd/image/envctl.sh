#!/bin/sh
# Starts envctl with the Node and the libraries that it was built with, from any directory.
set -eu
self=$0
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
lib=$(cd -P -- "${self%/*}/../lib" && pwd)
# What it says of itself was written when it was built: these answers take no time, also where a shell asks at each of its starts.
said=
case $* in
  --version | -V) said=version ;;
  --help | -h) said=help ;;
  man) said=man ;;
  'completion bash' | 'completion zsh' | 'completion fish') said=$2 ;;
esac
[ -z "$said" ] || exec cat "$lib/said/$said"
# What is preloaded here is linked with the C library of this machine, which is another one.
unset LD_PRELOAD LD_AUDIT
# V8's young generation has its whole size at once. It would grow to that by collections while the program is loaded.
set -- --min-semi-space-size=16 "$lib/envctl.cjs" "$@"
exec "$lib/ld.so" --inhibit-cache --library-path "$lib" "$lib/envctl" "$@"
