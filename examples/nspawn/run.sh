#!/bin/sh
# usage: run.sh DIST ROOT   boots a directory with Debian and systemd by systemd-nspawn(1), as root, with the daemon as its service.
set -eu
here=$(cd "${0%/*}" && pwd)
dist=$1 root=$2
ENVD=http://127.0.0.1:${ENVD_PORT:-49983} TOKEN=${TOKEN:-secret}
. "$here/../steps.sh"

sh "$dist/install/install.sh" --init=systemd "$dist" "$root"
mkdir -p "$root/etc/envd"
printf '%s\n' ENVD_HOST=127.0.0.1 "ENVD_PORT=${ENVD_PORT:-49983}" ENVD_REQUIRE_TOKEN=1 >"$root/etc/envd/envd.env"
# Without machined: the container has no name there. It shares the network of this machine, so the daemon listens on localhost. Newer
# releases of systemd want cgroup v2 alone.
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
systemd-nspawn --quiet --directory="$root" --register=no --keep-unit --boot --console=pipe >"${LOG:-/dev/null}" 2>&1 &
container=$!
# nspawn powers the system off when it gets SIGTERM.
trap 'kill $container && wait $container || true' EXIT

init
start_work
# A container has no snapshot of its own: the machine that it is on is paused.
freeze_and_collapse
# Here the platform takes the snapshot of the machine, and resumes it.
init
show_work
