#!/bin/sh
# usage: run.sh DIST ROOT [FLAG…]   runs the daemon in a directory with a system, by chroot(8), as root; flags are the daemon's. It is
# installed there for an init of your own, and ends with this script.
set -eu
here=$(cd "${0%/*}" && pwd)
dist=$1 root=$2
shift 2
ENVD=http://127.0.0.1:${ENVD_PORT:-49983} TOKEN=${TOKEN:-secret}
. "$here/../steps.sh"

sh "$dist/install/install.sh" --init=none "$dist" "$root"
# The mounts are seen in this namespace only, and end with it.
ENVD_REQUIRE_TOKEN=1 unshare --mount sh -ec '
  root=$1
  shift
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  exec chroot "$root" /opt/envd/bin/envd-supervise --host=127.0.0.1 "$@"' sh "$root" "$@" &
supervisor=$!
trap 'kill $supervisor && wait $supervisor || true' EXIT

init
start_work
# A chroot has no snapshot of its own: the machine that it is on is paused.
freeze_and_collapse
# Here the platform takes the snapshot of the machine, and resumes it.
init
show_work
