#!/bin/sh
# Starts envctl with the Node of this machine, or with the one that ENVCTL_NODE names, from any directory.
set -eu
self=$0
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
lib=$(cd -P -- "${self%/*}/../lib" && pwd)
node=${ENVCTL_NODE:-node}
command -v "$node" >/dev/null || {
  echo "envctl: '$node' is not there: install Node 24 or newer, or set ENVCTL_NODE to one" >&2
  exit 120
}
exec "$node" "$lib/envctl.cjs" "$@"
