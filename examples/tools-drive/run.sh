#!/bin/sh
# usage: run.sh IMAGE ROOT [FLAG…]   mounts a disk of make.sh in a directory with a system, as a guest mounts it, and runs the daemon from
# it by chroot(8), as root. ROOT needs an empty directory mnt/tools, and nothing of the daemon.
set -eu
here=$(cd "${0%/*}" && pwd)
image=$1 root=$2
shift 2
ENVD=http://127.0.0.1:${ENVD_PORT:-49983} TOKEN=${TOKEN:-secret}
. "$here/../steps.sh"

ENVD_REQUIRE_TOKEN=1 unshare --mount sh -ec '
  image=$1 root=$2
  shift 2
  mount -o loop,ro "$image" "$root/mnt/tools"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  exec chroot "$root" /mnt/tools/bin/envd-supervise --host=127.0.0.1 "$@"' sh "$image" "$root" "$@" &
supervisor=$!
trap 'kill $supervisor && wait $supervisor || true' EXIT

init
start_work
freeze_and_collapse
# Here the platform takes the snapshot of the machine, and resumes it, with the same disk.
init
show_work
